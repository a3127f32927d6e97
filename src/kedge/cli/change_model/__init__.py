"""Commands for changing the model behind an index: rehearse it, suggest what to encode again, migrate a store."""
