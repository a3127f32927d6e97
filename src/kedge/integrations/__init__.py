"""A run in other people's stacks: one module per framework, named after it, and an OpenAI-compatible server.

Each module imports its framework, and none is imported before it is used. All of them wrap an embedder of X, the new
model, so that it speaks Y, the old index's language; `translation.py` is what they share. They may import tasks and
what is below.
"""
