"""The picture: both spaces in two dimensions, the groups of their rows, and which rows are near each other.

Everything is returned as plain arrays for pages, figures and tables. May import `kedge.tasks` and everything below, and
nothing else of `kedge.report`.
"""
