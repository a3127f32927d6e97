"""Image encoders, one module per library; each has `load`."""
