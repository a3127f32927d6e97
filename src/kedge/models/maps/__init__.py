"""Maps from one space to another: one protocol, one module per family, and the choice among them by searching.

A family is a module with `Form`, the class of its maps, and `candidates(lesson)`, which yields labelled maps to choose
from. To add one, write such a module, and a line in `families.py`. Forms load without torch; fitting needs it. May
import the modules of `kedge.models`, matching and below.
"""
