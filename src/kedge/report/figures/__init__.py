"""Figures for papers, drawn by Matplotlib and written to files.

Here live the drawings, the curves they and the page draw, and what writes them. May import `kedge.report.picture`,
`kedge.tasks` and everything below.
"""
