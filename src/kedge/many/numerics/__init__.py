"""Numerical methods for many spaces, on plain tensors. May import judging, models, matching and geometry."""
