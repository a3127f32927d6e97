"""The live page: the page of a run from a server on this machine, which answers questions about any key.

This package holds the answers (`explorer`, `old_and_new`, `thumbnails`) and the server that sends them. May import
`kedge.report.page`, `kedge.report.picture`, `kedge.tasks` and everything below.
"""
