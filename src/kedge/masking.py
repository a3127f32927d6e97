"""Mask secrets in text: passwords and keys in anything like an address, even a mistyped one, become `***`.

The end of a secret can be ambiguous, as in `me:pa#ss@host/db#docs`. If in doubt, more is hidden than necessary, and
what cannot be parsed is hidden up to the last @. Masking is idempotent.
"""

from __future__ import annotations

import re

MASK = "***"
_WORD = r"[\w%.+~-]"
_PORT = r"""\d{1,5}(?=[/?#\s:,;)'"]|$)"""
_HTTP = r"https?:/+"
# What a client may be given; Path("http://host") becomes http:/host. After any other word and colon, all is hidden.
_SCHEME = rf"(?:{_HTTP}|(?:postgres(?:ql)?(?:\+\w+)?|grpcs?):/+)"
_MASKED = r"""\*\*\*(?:@[^\s@]*)?(?:[\s&:;,)'"]|$)"""
_END = r"""[:;,.)'"]{1,4}(?:\s|$)"""  # of an address within a sentence, as before `: no such file`
# Options whose value is a secret wherever they occur, and those for which this holds only after ? or &.
_OPTION = (
    r"[\w.-]*(?:pass(?:word|wd|phrase|code)?|pwd|token|secret|credentials?|authorization|(?:api|access|private)[-_.]?key)"
    r"(?:[-_.](?:access[-_.])?key)?"
)
_QUERY_OPTION = rf"(?:{_OPTION}|key|auth|sig(?:nature)?|jwt|pw)"
_SHORT = r"""(?:'[^']*(?:'|$)|"[^"]*(?:"|$)|[^&\s]+)"""
_LONG = rf"(?:(?!{_END})[^&])+"  # may contain spaces

# A name with a dot, or localhost, before a port is a host, not a user, and is skipped.
_HOST = rf"{_HTTP}(?:localhost|\[[\da-f:.]+\]|[\w-]+(?:\.[\w-]+)+):{_PORT}"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.DOTALL)


# scheme://user:SECRET@, up to the last @; no @ after a space counts if the secret could be the port in host:port.
_IN_URL = _pattern(rf"{_HOST}|{_SCHEME}[^/?#@:]*:(?!\s|{_MASKED})((?!{_PORT}).+|\S+)(?=@)")
# user:SECRET@ or kind:user:SECRET@, with no scheme or an unknown one, but not a folder such as /home/me@work.
_FOLDER = r"(?:(?:lancedb|qdrant-edge|sqlite-vec|faiss|parquet):|(?:chroma|qdrant):(?=[/.~]))[^:@]*@"
_BARE = rf"(?!{_SCHEME}|{_FOLDER}){_WORD}+:(?!\s|{_SCHEME}|{_MASKED})"
_IN_PHRASE = _pattern(rf"{_HOST}|(?<!{_WORD}){_BARE}(.+)(?=@)")
_IN_NAME = _pattern(rf"^{_BARE}(.+)(?=@)")
_PHRASE = _pattern(rf"(?:(?!{_END}|\s\S*?{_SCHEME}).)+")
_OTHERS = (
    # scheme://user:SECRET, without a host: what follows the colon is not a valid port.
    _pattern(rf"{_SCHEME}[^/?#@:\s]*:(?!\s|{_PORT}|{_MASKED})((?:(?!{_END})[^\s@])+)"),
    # http://SECRET@: a key in place of a user.
    _pattern(rf"{_HTTP}(?!{_MASKED})([^/?#@:\s]+)(?=@)"),
    _pattern(rf"(?<=[?&]){_QUERY_OPTION}\s*=\s*(?!{_MASKED})({_LONG})"),
    _pattern(rf"(?<![\w./?&-])(?:{_OPTION}\s*=\s*|--{_OPTION}\s+)(?!{_MASKED})({_SHORT})"),
)


def mask(text: str, *, whole: bool = False) -> str:
    """Hide what looks like a secret; with `whole`, the text is a single name or address, which may contain spaces."""
    masked, end = "", 0
    for begin, stop in _spans(text, whole=whole):
        if begin >= end:
            masked += text[end:begin] + MASK
        end = max(end, stop)
    masked += text[end:]
    return masked if masked == text else mask(masked, whole=whole)


def secrets_in(address: str) -> set[str]:
    """The parts of an address that `mask` hides."""
    return {address[begin:stop] for begin, stop in _spans(address, whole=True)}


def _spans(text: str, *, whole: bool) -> list[tuple[int, int]]:
    """The start and end of each secret, in order; some overlap."""
    # Search no further than the last @: otherwise a malicious text would take quadratic time.
    found = [*_IN_URL.finditer(text, 0, text.rfind("@") + 1)]
    for begin, stop in (phrase.span() for phrase in _PHRASE.finditer(text)):
        found += _IN_PHRASE.finditer(text, begin, text.rfind("@", begin, stop) + 1)
    found += [match for pattern in _OTHERS for match in pattern.finditer(text)]
    found += [*_IN_NAME.finditer(text)] if whole else []
    return sorted(match.span(match.lastindex) for match in found if match.lastindex)
