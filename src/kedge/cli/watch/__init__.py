"""Commands that watch an index: `drift`, `audit`, `canary`.

Like all of `kedge.cli`, they may import every other part of kedge, inside functions.
"""
