"""Use a run in other stacks: one module per framework, named after it, and an OpenAI-compatible server.

Each module imports its framework, so none is imported before it is used. All of them wrap an embedder of X, the new
model, so that its vectors fit Y, the old index; they share `translation.py`. They may import tasks and everything
below.
"""
