"""Untrusted text on a terminal: characters that would control it, or start a new line, are escaped.

Keys, file names and messages that quote them may hold anything.
"""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1), line and paragraph separators, bidirectional controls, lone surrogates.
_COMMANDING = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(text: str) -> str:
    r"""Text on one line, with `\x1b` or `\n` where such a character was."""
    return _COMMANDING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def shown_in_json(line: str) -> str:
    r"""A line of JSON with `\u009b` where such a character was, which reads back as the same."""
    return _COMMANDING.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
