"""Image encoders, one module per library; each has `load`. May import `kedge.spaces.encoders`."""
