"""A trained run as something to deploy: calibrated probabilities, an OOD score, and whether to accept the answer."""
