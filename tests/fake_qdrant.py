"""Stands in for Qdrant's server, which no Python package brings: the calls that kedge makes, as HTTP, on loopback.

What is asked is read by the models of Qdrant's own client and answered by its local mode, so that names, types and
JSON are those of the real one. How a real server behaves otherwise, it cannot tell.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import unquote, urlsplit

from qdrant_client import QdrantClient, models


@contextmanager
def serve(key: str | None = None) -> Iterator[str]:
    """The URL of a server that lasts as long as the context, and wants the key if there is one."""
    client = QdrantClient(":memory:", force_disable_check_same_thread=True)

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            _, _, name, *verb = map(unquote, urlsplit(self.path).path.split("/"))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if key and self.headers.get("api-key") != key:
                self._answer(401, {"status": {"error": "Must provide an API key"}})
            else:
                asked = json.loads(body) if body else {}
                try:
                    result = _result(client, self.command, name, verb, asked)
                except ValueError as error:  # as where a collection exists, or does not
                    self._answer(409 if "already exists" in str(error) else 404, {"status": {"error": str(error)}})
                else:
                    self._answer(200, {"status": "ok", "time": 0, "result": result})

        do_GET = do_PUT = do_POST = do_DELETE = _do  # noqa: N815

        def _answer(self, status: int, told: object) -> None:
            data = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            client.close()


def _result(client: QdrantClient, method: str, name: str, verb: list[str], asked: dict) -> object:
    match method, verb:
        case "GET", ["exists"]:
            return {"exists": client.collection_exists(name)}
        case "GET", []:
            return client.get_collection(name).model_dump(mode="json")
        case "PUT", []:
            made = models.CreateCollection.model_validate(asked)
            return client.create_collection(name, vectors_config=made.vectors, metadata=made.metadata)
        case "DELETE", []:
            return client.delete_collection(name)
        case "PUT", ["points"]:
            client.upsert(name, models.PointsList.model_validate(asked).points)
            return {"operation_id": 0, "status": "completed"}
        case "POST", ["points"]:
            want = models.PointRequest.model_validate(asked)
            found = client.retrieve(name, want.ids, with_payload=want.with_payload, with_vectors=want.with_vector)
            return [record.model_dump(mode="json") for record in found]
        case "POST", ["points", "count"]:
            return {"count": int(client.count(name).count)}
        case "POST", ["points", "scroll"]:
            want = models.ScrollRequest.model_validate(asked)
            found, following = client.scroll(
                name,
                limit=want.limit,
                offset=want.offset,
                with_payload=want.with_payload,
                with_vectors=want.with_vector,
            )
            return {"points": [record.model_dump(mode="json") for record in found], "next_page_offset": following}
    raise NotImplementedError(f"{method} {verb}")
