"""Outputs that appear whole or not at all: temporary names, locks and staging folders.

Imports nothing else of kedge but its errors.
"""
