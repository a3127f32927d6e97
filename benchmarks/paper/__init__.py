"""The paper's experiments (words, images, reviews), on the data at hand or on the original files.

`kedge reproduce` runs them from a checkout (`command.py`); the benchmarks beside this folder take their data from here.
It imports kedge, and `kedge.cli` for output; kedge imports nothing from here by name.
"""
