"""The command line: one small file per command, in one folder per group of `kedge --help`; here is what they share.

May import every other part of kedge, and does so inside functions, so that `kedge --help` stays quick.
"""
