"""Commands for changing the model behind an index: rehearse it, suggest what to encode again, migrate a store.

Like all of `kedge.cli`, they may import every other part of kedge, inside functions.
"""
