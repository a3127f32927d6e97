"""What is kept: run folders, checkpoints, and the checks of what is read back. May import judging and below."""
