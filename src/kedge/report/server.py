"""A small server for the live page: on this machine only, and nothing but questions and answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kedge.errors import InputError
from kedge.report.explorer import Explorer
from kedge.report.page import live_page, plotly_script

LOOPBACK = "127.0.0.1"

_HTML, _SCRIPT, _JSON = "text/html; charset=utf-8", "text/javascript; charset=utf-8", "application/json"


def serve(explorer: Explorer, port: int) -> ThreadingHTTPServer:
    """A server that listens on a port of the loopback device (0: any that is free); `serve_forever` runs it."""
    answers = _answers(explorer)
    pages = {
        "/": (_HTML, live_page(explorer.words).encode()),
        "/plotly.js": (_SCRIPT, plotly_script().encode()),
        "/contents.json": (_JSON, _as_json(explorer.contents)),
    }

    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD; there is nothing to write to."""

        server_version = "kedge"
        sys_version = ""

        def do_GET(self) -> None:
            self._send(*self._answer(), with_body=True)

        def do_HEAD(self) -> None:
            self._send(*self._answer(), with_body=False)

        def _answer(self) -> tuple[HTTPStatus, str, bytes]:
            if self.headers.get("Host") not in hosts:  # a page from elsewhere whose name was made to point here
                return HTTPStatus.FORBIDDEN, _JSON, _as_json({"error": f"ask for {hosts[0]}"})
            asked = urlsplit(self.path)
            if asked.path in pages:
                return (HTTPStatus.OK, *pages[asked.path])
            if asked.path not in answers:
                return HTTPStatus.NOT_FOUND, _JSON, _as_json({"error": f"there is no {asked.path}"})
            parameters = {name: values[0] for name, values in parse_qs(asked.query, keep_blank_values=True).items()}
            try:
                return HTTPStatus.OK, _JSON, _as_json(answers[asked.path](parameters))
            except InputError as error:
                return HTTPStatus.BAD_REQUEST, _JSON, _as_json({"error": str(error)})

        def _send(self, status: HTTPStatus, kind: str, body: bytes, *, with_body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.send_header("X-Frame-Options", "DENY")
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody wants a line a question."""

    server = _Server((LOOPBACK, port), Handler)
    hosts = [f"{name}:{server.server_port}" for name in (LOOPBACK, "localhost")]
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away in the middle of an answer is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _answers(explorer: Explorer) -> Mapping[str, Callable[[Mapping[str, str]], Any]]:
    """What can be asked, by path."""
    return {
        "/keys": lambda asked: {"hits": explorer.find(asked.get("text", ""))},
        "/key": lambda asked: {"entry": explorer.look_up(asked.get("key", ""))},
        "/near": lambda asked: {"lists": explorer.neighbours(asked.get("side", ""), asked.get("row", ""))},
        "/view": lambda asked: explorer.view(asked.get("kind", ""), asked.get("count", ""), asked.get("keys", "")),
    }


def _as_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
