"""An OpenAI-compatible /v1/embeddings in the old space, in front of the new model's endpoint ("upstream").

aiohttp is used for both the server and the upstream client. Everything is bounded: body size, number of inputs,
concurrent requests, and time.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kedge.errors import InputError
from kedge.extras import needing
from kedge.integrations.embedding_answers import (
    EmbeddingRequest,
    answer_body,
    error_body,
    parse_request,
    parse_upstream,
    upstream_body,
)
from kedge.masking import MASK, mask
from kedge.models.translation_trust import Trust
from kedge.models.translator import Translator

with needing("kedge serve needs", "aiohttp", install="kedge[serve]"):
    import aiohttp
    from aiohttp import web

Translated = tuple[NDArray[np.float32], Trust | None]
"""Vectors (k, dt), and how far to trust each, if requested."""
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]", "::1")
"""Host names that refer to this machine only."""
_JSON = "application/json"
# Translating this many rows takes about as long as handing them to a thread.
_ROWS_IN_LOOP = 32
_MAX_QUOTED = 300
_UPSTREAM_FAULTS = {400: 400, 404: 502, 413: 413, 422: 400, 429: 429}
"""The status to answer for each status with which upstream refuses a request; 502 for any other."""


@dataclass(frozen=True)
class Upstream:
    """The new model's endpoint: its base URL, as for OpenAI's clients, its key, and the variable that held the key."""

    url: str
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    key_variable: str = ""
    timeout: float = 60.0

    @property
    def endpoint(self) -> str:
        """The URL for embeddings."""
        return self.url.rstrip("/") + "/embeddings"


@dataclass(frozen=True)
class Limits:
    """Limits beyond which requests are refused: body size, inputs per request, and concurrent requests."""

    max_bytes: int = 32 * 2**20
    max_inputs: int = 2048
    max_requests: int = 512


class _RefusedError(Exception):
    """An error that is sent to the client."""

    def __init__(self, status: int, message: str, kind: str = "invalid_request_error", after: str = "") -> None:
        super().__init__(message)
        self.status, self.kind, self.after = status, kind, after

    def response(self) -> web.Response:
        headers = {"Retry-After": self.after} if self.after else {}
        return web.Response(
            status=self.status, body=error_body(str(self), self.kind), content_type=_JSON, headers=headers
        )


class EmbeddingServer:
    """Takes texts or vectors of the new model and returns vectors of the old space.

    Clients must send `client_key` as `Authorization: Bearer KEY`; without one, only requests addressed to this machine
    itself are answered. With `trust`, each embedding says how far to trust its translation.
    """

    def __init__(
        self,
        translator: Translator,
        upstream: Upstream | None,
        limits: Limits | None = None,
        client_key: str | None = None,
        *,
        trust: bool = False,
    ) -> None:
        self._translator = translator
        self._with_trust = trust
        self._upstream = upstream
        self._limits = limits or Limits()
        self._client_key = client_key
        self._at_work = 0
        self._session: aiohttp.ClientSession | None = None

    def application(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=self._limits.max_bytes, middlewares=[self._refuse])
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_get("/health", self._health)
        app.cleanup_ctx.append(self._client)
        return app

    def run(self, listener: socket.socket) -> None:
        """Serve on a socket until Ctrl-C or SIGTERM; requests in progress are finished."""
        web.run_app(self.application(), sock=listener, print=None, access_log=None, shutdown_timeout=5.0)

    async def _client(self, _: web.Application) -> AsyncIterator[None]:
        if self._upstream is None:
            yield
            return
        headers = {"Authorization": f"Bearer {self._upstream.key}"} if self._upstream.key else {}
        connector = aiohttp.TCPConnector(limit=self._limits.max_requests)
        timeout = aiohttp.ClientTimeout(total=self._upstream.timeout)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as self._session:
            yield

    @web.middleware
    async def _refuse(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Turn errors into responses in OpenAI's format."""
        try:
            self._require_allowed(request)
            return await handler(request)
        except _RefusedError as refusal:
            return refusal.response()
        except InputError as error:
            return _RefusedError(400, str(error)).response()
        except web.HTTPRequestEntityTooLarge:
            return _RefusedError(413, f"the body has more than {self._limits.max_bytes} bytes").response()
        except web.HTTPException as error:
            return _RefusedError(error.status, f"{error.reason}: use POST /v1/embeddings").response()

    def _require_allowed(self, request: web.Request) -> None:
        if self._client_key is not None:
            sent = request.headers.get("Authorization", "")
            # Headers are bytes, and those that are not UTF-8 arrive as surrogates.
            given = sent.encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(given, f"Bearer {self._client_key}".encode()):
                raise _RefusedError(
                    401, "the key is missing or wrong: send Authorization: Bearer KEY", "authentication_error"
                )
        elif _host_of(request.host) not in LOOPBACK_NAMES:  # DNS rebinding by a page from elsewhere
            raise _RefusedError(403, f"wrong host: use {LOOPBACK_NAMES[0]}", "permission_error")

    async def _health(self, _: web.Request) -> web.Response:
        source, target = self._translator.dims
        return web.json_response({"status": "ok", "dimensions_in": source, "dimensions_out": target})

    async def _embeddings(self, request: web.Request) -> web.Response:
        if request.content_type != _JSON:  # JSON is what pages of other origins may not send without CORS
            raise _RefusedError(415, f"the body must be JSON, with Content-Type: {_JSON}; got {request.content_type}")
        if self._at_work >= self._limits.max_requests:
            raise _RefusedError(
                503, f"{self._at_work} requests are in progress already; try again", "server_error", after="1"
            )
        self._at_work += 1
        try:
            asked = parse_request(await request.read(), self._translator, self._limits.max_inputs)
            usage: Mapping[str, Any] = {}
            if asked.vectors is not None:
                translated = await self._translated(asked.vectors)
            else:
                translated, usage = await self._encoded(asked)
            return web.Response(body=answer_body(asked, *translated, usage), content_type=_JSON)
        finally:
            self._at_work -= 1

    async def _translated(self, vectors: NDArray[np.float32]) -> Translated:
        """Translate vectors (k, ds) to (k, dt); many of them in a thread, so that other requests are not blocked."""
        if len(vectors) <= _ROWS_IN_LOOP:
            return self._translate(vectors)
        return await asyncio.to_thread(self._translate, vectors)

    def _translate(self, vectors: NDArray[np.float32]) -> Translated:
        return self._translator(vectors), self._translator.trust(vectors) if self._with_trust else None

    async def _encoded(self, asked: EmbeddingRequest) -> tuple[Translated, Mapping[str, Any]]:
        """Have upstream encode texts; returns translated vectors (k, dt), trust in them, and usage."""
        if self._upstream is None or self._session is None:
            raise _RefusedError(400, "without --upstream only vectors are translated; send vectors as input")
        body = upstream_body(asked, self._upstream.model)
        try:
            try:
                given = await self._post(self._session, body)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if isinstance(error, aiohttp.ClientConnectorError):  # nothing is listening
                    raise
                # Upstream had closed a keep-alive connection that this request reused, so try once more.
                given = await self._post(self._session, body)
        except TimeoutError as error:
            raise _RefusedError(
                504, f"upstream did not answer within {self._upstream.timeout:g} s", "upstream_error"
            ) from error
        except aiohttp.ClientError as error:
            raise _RefusedError(
                502, f"upstream cannot be reached ({type(error).__name__}); is it running?", "upstream_error"
            ) from error
        try:
            vectors, usage = parse_upstream(given, len(asked.texts or ()), self._translator)
            return await self._translated(vectors), usage
        except InputError as error:
            raise _RefusedError(502, f"upstream's answer cannot be translated: {error}", "upstream_error") from error

    async def _post(self, session: aiohttp.ClientSession, body: bytes) -> bytes:
        """Post to upstream and return the body of its answer."""
        assert self._upstream is not None
        # Redirects are not followed: they would send texts and key elsewhere.
        async with session.post(
            self._upstream.endpoint, data=body, headers={"Content-Type": _JSON}, allow_redirects=False
        ) as answer:
            given = await self._whole(answer)
            if answer.status != 200:
                raise self._fault(answer.status, given, answer.headers.get("Retry-After", ""))
            return given

    async def _whole(self, answer: aiohttp.ClientResponse) -> bytes:
        """The whole body of upstream's answer; raises if it is too large."""
        given = bytearray()
        async for chunk in answer.content.iter_any():
            given += chunk
            if len(given) > self._limits.max_bytes:
                raise _RefusedError(
                    502,
                    f"upstream answered with more than {self._limits.max_bytes} bytes; send fewer",
                    "upstream_error",
                )
        return bytes(given)

    def _fault(self, status: int, given: bytes, after: str) -> _RefusedError:
        """The error to send if upstream refuses; its message is quoted, unless the refusal is about the key."""
        assert self._upstream is not None
        if status in (401, 403):
            which = (
                f"the key in ${self._upstream.key_variable}"
                if self._upstream.key
                else "requests without a key; name its variable with --upstream-key-env"
            )
            return _RefusedError(502, f"upstream refuses {which} (status {status})", "upstream_error")
        said = _said(given)
        if self._upstream.key:
            said = said.replace(self._upstream.key, MASK)
        said = said[:_MAX_QUOTED]
        message = f"upstream refuses this request (status {status}){': ' if said else ''}{mask(said)}"
        kind = "invalid_request_error" if status in (400, 413, 422) else "upstream_error"
        return _RefusedError(_UPSTREAM_FAULTS.get(status, 502), message, kind, after if status == 429 else "")


def _said(given: bytes) -> str:
    """The message of an upstream error, on one line."""
    try:
        error = json.loads(given)["error"]
        text = error["message"] if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return " ".join(str(text).split())


def _host_of(host: str) -> str:
    """The name in `name:port`."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdigit() else host
