"""The numerics of many spaces: tensors in, tensors out. May import judging, models, matching and geometry."""
