"""The paper's experiments, on the data at hand or on the original files: words, images, reviews.

`kedge reproduce` runs them from a checkout (`command.py`); the benchmarks beside this folder take their data from here.
Imports kedge's public parts and `kedge.cli` for what it prints; kedge imports nothing from here by name.
"""
