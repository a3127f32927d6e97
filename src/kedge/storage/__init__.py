"""What stored JSON and tensors must be before anything is made of them, and checksums. May import spaces."""
