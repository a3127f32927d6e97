"""Fused GPU kernels, and when they are used; the only folder that depends on Triton. May import matching and below."""
