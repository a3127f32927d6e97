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
_MASKED = r"""\*\*\*(?:@[^\s@]*)?(?:[\s&:;,)}\]'"]|$)"""
_END = r"""[:;,.)'"]{1,4}(?:\s|$)"""  # of an address within a sentence, as before `: no such file`
# Options whose value is a secret wherever they occur, and those for which this holds only after ? or &.
_OPTION = (
    r"[\w.-]*(?:pas+(?:w\w{0,4}|phrase|code)?|pw(?:d|ord)?|token|secret|credentials?|authorization|"
    r"(?:access|account|admin|api|auth|master|private|service|shared|subscription)[-_.]?key)"
    r"(?:[-_.](?:access[-_.])?key)?"
)
_QUERY_OPTION = rf"(?:{_OPTION}|key|auth|bearer|session|sig(?:nature)?|jwt)"
# Of a URL, all options are secrets, but for those that clients of PostgreSQL and HTTP take, and short numbers.
_HARMLESS = (
    r"(?:host(?:addr)?|port|db(?:name)?|database|user(?:name)?|(?:fallback_)?application_name|(?:connect_)?timeout|"
    r"client_encoding|options|keepalives\w*|tcp_user_timeout|replication|(?:gss|ssl|requiressl|krb)\w*|require_?peer|"
    r"require_auth|passfile|service(?:file)?|(?:ssl_)?(?:min|max)_protocol_version|target_session_attrs|"
    r"load_balance_hosts|channel_binding|tenant|collection|prefix|https|region|(?:api[-_])?version)\s*="
    r"|[^\s=&]*=(?:\d{1,5}|true|false|on|off)(?![^\s&#:;,.)'\"])"
)
_SHORT = r"""(?:'[^']*(?:'|$)|"[^"]*(?:"|$)|[^&\s]+)"""
_LONG = rf"(?:(?!{_END})[^&])+"  # may contain spaces
_WORDS = r"(?-i:[a-z]+ [a-z*])"  # prose, as in `password: leave it to the environment`
_VALUE = rf"""(?!{_MASKED}|{_WORDS})('[^']+'|"[^"]+"|(?:(?!{_END})[^&\s])+)"""
_HOW = r"(?:bearer|basic|digest|token|api-?key)\s+"  # before the secret in a header

_ANY = rf"(?:[a-z][a-z\d+.-]{{0,30}}://|{_SCHEME})"

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
    # scheme://user: SECRET@, with a space.
    _pattern(rf"(?:{_SCHEME}|//)[^/?#@:\s]*:\s+(?!{_MASKED}|{_PORT})(\S{{1,200}})(?=@)"),
    # http://SECRET@, http://SECRET:@ or http://SECRET:x@: a key in place of a user.
    _pattern(rf"{_HTTP}(?!{_MASKED})([^/?#@:\s]+)(?=(?::x?)?@)"),
    # scheme://user=SECRET@ and the like: a user has letters, digits, dots and hyphens.
    _pattern(rf"(?<!\w){_ANY}(?!\w[\w.-]*@|{_MASKED})([^/?#@:]{{1,200}})(?=@)"),
    _pattern(r"(?<!\w)postgres\w*:/+(\w[\w.-]*/[^\s/?#@:]{1,200})(?=@)"),
    _pattern(rf"(?<=[?&]){_QUERY_OPTION}\s*[=:]\s*(?!{_MASKED})({_LONG})"),
    _pattern(rf"(?<![\w./?&-])(?:{_OPTION}\s*=\s*|--?{_OPTION}\s+)(?!{_MASKED})({_SHORT})"),
    # `host=h password SECRET`, where = was forgotten.
    _pattern(rf"\w=[^\s=]*\s+{_OPTION}\s+(?!{_MASKED}|=)({_SHORT})"),
    # Headers and JSON: `api-key: SECRET`, `"password": "SECRET"`, `Authorization: Bearer SECRET`, `Bearer SECRET`.
    _pattern(rf"""(?<![\w./?&-]){_OPTION}['"]?\s*:\s*(?:{_HOW}|(?!{_HOW})){_VALUE}"""),
    _pattern(rf"(?<![\w./?&-])bearer\s+(?!token\b){_VALUE}"),
)
_URL = _pattern(rf"://|{_SCHEME}")
_URL_OPTION = _pattern(rf"(?<=[?&])(?!{_HARMLESS})[^\s=&?#/:@]{{1,60}}=(?!{_MASKED})((?:(?!{_END})[^&\s])+)")


def mask(text: str, *, whole: bool = False) -> str:
    """Hide what looks like a secret; with `whole`, the text is a single name or address, which may contain spaces."""
    while spans := _spans(text, whole=whole):
        masked, end = "", 0
        for begin, stop in spans:
            if begin >= end:
                masked += text[end:begin] + MASK
            end = max(end, stop)
        if (masked := masked + text[end:]) == text:
            break
        text = masked
    return text


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
    if url := _URL.search(text):
        found += _URL_OPTION.finditer(text, url.start())
    found += [*_IN_NAME.finditer(text)] if whole else []
    return sorted(match.span(match.lastindex) for match in found if match.lastindex)
