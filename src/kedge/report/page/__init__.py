"""The page: a run, or several runs side by side, as one HTML file.

This package prepares the words and data of a page, section by section, and fills in the templates of
`kedge/report/assets`. May import `kedge.report.picture`, `kedge.report.figures`, `kedge.tasks` and everything below.
"""
