"""The picture: both spaces in two dimensions, in what groups their rows are, and which rows are near each other.

Plain arrays, for pages, figures and tables to show. May import `kedge.tasks` and everything below, and nothing else of
`kedge.report`.
"""
