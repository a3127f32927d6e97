"""Is it right, for what, and how sure: chance, recognition, confidence, overlap, doubtful seeds, verdicts.

May import solving and below.
"""
