"""Commands that find pairs and a map: discover, unite, a quick check before them, the demo, the paper's experiments.

Like all of `kedge.cli`, they may import every other part of kedge, inside functions.
"""
