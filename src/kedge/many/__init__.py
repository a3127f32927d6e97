"""Many spaces at once: one common space, fitted pair by pair, then jointly. May import estimators and below."""
