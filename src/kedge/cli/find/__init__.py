"""Commands that find pairs and a map: discover, unite, a quick check before them, the demo, the paper's experiments."""
