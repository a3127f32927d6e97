"""Many spaces at once: one common space, found pair by pair and then all together. May import estimators and below."""
