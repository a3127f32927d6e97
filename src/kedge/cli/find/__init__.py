"""Commands that find pairs and a map: discover, the quick check before it, the demo, and the paper's experiments."""
