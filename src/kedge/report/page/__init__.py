"""The page: what a run, or several runs side by side, look like as one HTML file.

Here live the words and data that go into a page, section by section, and what fills in the templates of
`kedge/report/assets`. May import `kedge.report.picture`, `kedge.report.figures`, `kedge.tasks` and everything below.
"""
