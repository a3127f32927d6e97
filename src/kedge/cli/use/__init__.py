"""Commands that use a run: to search, translate, project and classify vectors, and to hand it to other programs.

Like all of `kedge.cli`, they may import every other part of kedge, inside functions.
"""
