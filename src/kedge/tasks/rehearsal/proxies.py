"""Stand-ins for missing queries: for each text of the index its title, or a sentence from its middle.

A stand-in should find the text it is taken from. If that text was encoded as a whole, the stand-in is a part of it and
finds it nearly as easily as the text itself would, so it flatters nearly as much (`benchmarks/queries.py`). If only a
summary was encoded, a sentence from elsewhere in the text is a better stand-in.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kedge.errors import InputError
from kedge.spaces.encoders.texts import read_texts
from kedge.spaces.pairs import write_table
from kedge.spaces.writing.atomic import atomic_path

_SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+(?=[^\W_a-z])|\n\s*\n")
_MIN_WORDS, _MAX_WORDS = 4, 40


@dataclass(frozen=True)
class ProxyQueries:
    """Stand-in queries, each with the key of the text it should find; `left_out` counts the texts without one."""

    keys: tuple[str, ...]
    texts: tuple[str, ...]
    left_out: int

    def __len__(self) -> int:
        return len(self.keys)


def make_proxies(keys: Sequence[str], texts: Sequence[str], titles: Sequence[str] | None = None) -> ProxyQueries:
    """A stand-in for each text: its title if `titles` are given, otherwise one of its sentences.

    The second sentence is taken, or the first one after it that has 4 to 40 words; the first sentence often repeats the
    title. Stand-ins that occur in several texts are skipped, since it is unknown which text they should find. Texts
    without a suitable stand-in are left out.
    """
    candidates = [[title.strip()] for title in titles] if titles is not None else [_sentences(text) for text in texts]
    frequency = Counter(one for some in candidates for one in set(some))
    chosen = {
        key: next((one for one in some if one and frequency[one] == 1), "")
        for key, some in zip(keys, candidates, strict=True)
    }
    kept = {key: text for key, text in chosen.items() if text}
    return ProxyQueries(tuple(kept), tuple(kept.values()), len(keys) - len(kept))


def read_proxies(path: Path, *, field: str, key_field: str | None, title_field: str | None = None) -> ProxyQueries:
    """Stand-ins for the texts of a file, which is read as `kedge encode text` reads it."""
    read = read_texts(path, field=field, key_field=key_field)
    titles = read_texts(path, field=title_field, key_field=key_field).texts if title_field else None
    proxies = make_proxies(read.keys, read.texts, titles)
    if not len(proxies):
        what = "a title of its own" if title_field else f"a second sentence of {_MIN_WORDS} to {_MAX_WORDS} words"
        raise InputError(f"{path}: none of its {len(read)} texts has {what}; give longer texts, or a field of titles")
    return proxies


def write_proxies(proxies: ProxyQueries, texts: Path, relevant: Path) -> None:
    """Write the stand-ins (JSON lines with `id` and `text`) and the keys they should find (a table of two columns)."""
    with atomic_path(texts) as temporary:
        rows = (json.dumps({"id": f"proxy:{key}", "text": text}) for key, text in _items(proxies))
        temporary.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    with atomic_path(relevant) as temporary:
        write_table(temporary, ("query", "doc"), ((f"proxy:{key}", key) for key in proxies.keys))


def _items(proxies: ProxyQueries) -> zip[tuple[str, str]]:
    return zip(proxies.keys, proxies.texts, strict=True)


def _sentences(text: str) -> list[str]:
    """Sentences from the second on whose length is plausible for a query."""
    sentences = [" ".join(sentence.split()) for sentence in _SENTENCE_ENDS.split(text.strip())]
    return [one for one in sentences[1:] if _MIN_WORDS <= len(one.split()) <= _MAX_WORDS]
