"""Training: train.py enters, setup.py builds, loop.py shows the step and the epochs."""
