"""One module per kind of store. May import `kedge.spaces.stores` and what that may; its client inside functions."""
