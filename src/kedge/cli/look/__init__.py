"""Commands that show a run, or what is in a file: as a page, live, as figures, as scores, beside other runs.

Like all of `kedge.cli`, they may import every other part of kedge, inside functions.
"""
