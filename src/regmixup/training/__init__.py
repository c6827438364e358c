"""Configuration + data -> Run: the loop, its folder and its checkpoints."""
