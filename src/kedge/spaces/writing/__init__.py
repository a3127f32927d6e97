"""Outputs that are there whole or not at all: temporary names, locks, and folders in which something is made."""
