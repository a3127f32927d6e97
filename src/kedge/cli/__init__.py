"""The command line: one module per command, in one folder per group of `kedge --help`; what they share is here.

It may import every other part of kedge, but does so inside functions, to keep `kedge --help` quick.
"""
