"""What is kept: run folders, checkpoints, locks, and the checks of what is read back. Imports spaces only."""
