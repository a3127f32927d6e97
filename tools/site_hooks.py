"""What MkDocs calls while it builds the site: equations become MathML, the parser's help becomes a page."""

from __future__ import annotations

import argparse
import html
import os
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

from latex2mathml.converter import convert

from kedge.cli.parser import build_parser

_COLUMNS = 100
_EQUATION = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?:\(|\[)(?P<latex>.*?)\\(?:\)|\])</(?P=tag)>', flags=re.DOTALL
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page of the command line: what is written there, then the help of every command."""
    if page.file.src_uri != "command-line.md":
        return markdown
    sections = (f"## {name}\n\n```text\n{text}\n```\n" for name, text in helps(build_parser()))
    return "\n".join([markdown, *sections])


def on_page_content(content: str, **_: Any) -> str:
    """Equations as MathML, which browsers draw by themselves: no script, no font."""
    return _EQUATION.sub(_as_mathml, content)


def helps(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The name and the help of a parser, and of all commands and kinds under it, in their order."""
    with mock.patch.dict(os.environ, {"COLUMNS": str(_COLUMNS), "NO_COLOR": "1"}):
        yield parser.prog, parser.format_help().rstrip()
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from helps(command)


def _as_mathml(found: re.Match[str]) -> str:
    display = "block" if found["tag"] == "div" else "inline"
    return convert(html.unescape(found["latex"]).strip(), display=display)
