"""Training: train.py enters, loop.py has the epochs of a run, step.py its step."""
