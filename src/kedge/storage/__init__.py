"""Validation of stored JSON and tensors before anything is built from them, and checksums. May import spaces."""
