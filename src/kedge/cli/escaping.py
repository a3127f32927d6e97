"""Text of others on a terminal: what would command it, or begin a line of its own, is written out.

Keys, names of files and messages that quote them may hold anything.
"""

from __future__ import annotations

import re

# Controls (C0, DEL, C1), separators of lines and paragraphs, what turns the direction of writing, half characters.
_COMMANDING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: str) -> str:
    r"""Text on one line, with `\x1b` or `\n` where such a character was."""
    return _COMMANDING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shown_in_json(line: str) -> str:
    r"""A line of JSON with `\u009b` where such a character was; it means the same."""
    return _COMMANDING.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
