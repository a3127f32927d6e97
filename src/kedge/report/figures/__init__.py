"""Figures for papers, drawn by Matplotlib and written to files.

This package holds the drawings, the curves that they and the page show, and the code that saves them. May import
`kedge.report.picture`, `kedge.tasks` and everything below.
"""
