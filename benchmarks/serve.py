"""`kedge serve`: requests per second, the milliseconds it adds, and whether any request is lost.

    python benchmarks/serve.py                    10,000 requests of one text each, 16 at a time
    python benchmarks/serve.py --inputs 32        with 32 texts in each

A stand-in for the new model's endpoint, in a process of its own, answers at once with ready-made vectors; `kedge serve`
is another process. The same requests go to the stand-in directly and through kedge: one at a time, for the time that is
added, and many at once. Each answer is compared with what the translator gives. Client, kedge and endpoint share the
machine's cores. CPU is what the server itself used per request when there were many, which other work on the machine
hardly changes. The load is how many processes wanted a core in the last minute, this benchmark's own three included.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from aiohttp import web

from kedge.models.maps.linear import LinearMap
from kedge.models.translator import Normaliser, TranslationStep, Translator
from kedge.tasks import export_bytes
from setting import describe_machine, markdown_header, markdown_row, new_parser, write_json

TEXTS = 1000
PATH = "/embeddings"
ABOUT = {"format": "kedge-translation", "source": "X", "target": "Y", "scale": "unit"}


def make_vectors(dim: int) -> np.ndarray:
    """Vectors (TEXTS, dim) of the texts "0", "1", ..."""
    return np.random.default_rng(0).standard_normal((TEXTS, dim)).astype("<f4")


def make_translator(source: int, target: int) -> Translator:
    """One that has all parts that a real one has."""
    chance = np.random.default_rng(1)
    matrix = chance.standard_normal((source, target)).astype(np.float32)
    ends = [Normaliser((0.5 * np.ones(dim) / np.sqrt(dim)).astype(np.float32)) for dim in (source, target)]
    return Translator((TranslationStep(ends[0], LinearMap(matrix), ends[1]),))


def serve_model(dim: int, tells: Connection) -> None:
    """The stand-in for an endpoint, until the process is ended."""
    encoded = [base64.b64encode(row.tobytes()).decode() for row in make_vectors(dim)]

    async def answer(request: web.Request) -> web.Response:
        asked = json.loads(await request.read())["input"]
        data = [
            {"object": "embedding", "index": row, "embedding": encoded[int(text)]} for row, text in enumerate(asked)
        ]
        return web.json_response({"object": "list", "data": data, "model": "m", "usage": {}})

    async def start() -> None:
        app = web.Application()
        app.router.add_post(f"/v1{PATH}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        tells.send(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        await asyncio.Event().wait()

    asyncio.run(start())


def cpu_seconds(pid: int) -> float:
    """What a process has used of the cores so far; NaN where the system does not say."""
    try:
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return math.nan
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


class Asker:
    """Sends requests to one base URL, and checks the answers against vectors (TEXTS, d)."""

    def __init__(self, session: aiohttp.ClientSession, url: str, inputs: int, expected: np.ndarray) -> None:
        self._session, self._url, self._inputs, self._expected = session, url + PATH, inputs, expected
        self.lost = 0

    async def ask(self, number: int) -> float:
        """The seconds that a request takes; what is not answered, and answered rightly, is lost."""
        rows = [(number + each) % TEXTS for each in range(self._inputs)]
        asked = {"model": "m", "input": [str(row) for row in rows], "encoding_format": "base64"}
        self.lost += 1
        began = time.perf_counter()
        try:
            async with self._session.post(self._url, json=asked) as answer:
                given = await answer.json()
            taken = time.perf_counter() - began
            vectors = [np.frombuffer(base64.b64decode(entry["embedding"]), "<f4") for entry in given["data"]]
            self.lost -= bool(np.allclose(vectors, self._expected[rows], atol=1e-5))
        except (aiohttp.ClientError, KeyError, ValueError):
            taken = time.perf_counter() - began
        return taken


async def one_by_one(asker: Asker, count: int) -> list[float]:
    """Seconds of requests of which each waits for the one before."""
    return [await asker.ask(number) for number in range(count)]


async def many_at_once(asker: Asker, count: int, at_once: int) -> float:
    """Requests per second, with so many under way."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await asker.ask(number)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(at_once)))
    return count / (time.perf_counter() - began)


async def measure(
    arguments: argparse.Namespace, servers: dict[str, tuple[str, int]], translator: Translator
) -> dict[str, Any]:
    """Both servers, by URL and process id: one request at a time, and many at once."""
    vectors = make_vectors(arguments.dims[0])
    found: dict[str, Any] = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        expected = {"endpoint": vectors, "kedge serve": translator(vectors)}
        askers = {name: Asker(session, url, arguments.inputs, expected[name]) for name, (url, _) in servers.items()}
        for asker in askers.values():  # what is done once is done now
            await one_by_one(asker, 50)
        # In turn, so that what else the machine does is shared.
        taken: dict[str, list[float]] = {name: [] for name in askers}
        for _ in range(10):
            for name, asker in askers.items():
                taken[name] += await one_by_one(asker, arguments.singly // 10)
        for name, asker in askers.items():
            before = cpu_seconds(servers[name][1])
            rate = await many_at_once(asker, arguments.requests, arguments.at_once)
            used = cpu_seconds(servers[name][1]) - before
            found[name] = {
                "median_ms": 1000 * float(np.median(taken[name])),
                "p95_ms": 1000 * float(np.percentile(taken[name], 95)),
                "requests_per_second": rate,
                "cpu_ms": 1000 * used / arguments.requests,
                "requests": 50 + 10 * (arguments.singly // 10) + arguments.requests,
                "lost": asker.lost,
            }
    return found


def main() -> None:
    """Start both servers, measure, print and write."""
    parser = new_parser(__doc__)
    parser.add_argument("--requests", type=int, default=10_000, help="requests, many at once (10000)")
    parser.add_argument("--singly", type=int, default=1000, help="requests one at a time (1000)")
    parser.add_argument("--at-once", type=int, default=16, help="requests under way (16)")
    parser.add_argument("--inputs", type=int, default=1, help="texts in each (1)")
    parser.add_argument("--dims", type=int, nargs=2, default=(384, 384), help="of the new and the old model (384 384)")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    arguments = parser.parse_args()
    translator = make_translator(*arguments.dims)
    receive, send = get_context("spawn").Pipe(duplex=False)
    model = get_context("spawn").Process(target=serve_model, args=(arguments.dims[0], send), daemon=True)
    model.start()
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, "to-y.npz")
        exported.write_bytes(export_bytes(translator, ABOUT, ".npz"))
        upstream = receive.recv()
        command = [sys.executable, "-m", "kedge", "serve", str(exported), "--upstream", upstream, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as kedge:
            try:
                assert kedge.stdout is not None
                served = json.loads("".join(kedge.stdout.readline() for _ in range(5)))["url"]
                servers = {"endpoint": (upstream, model.pid or 0), "kedge serve": (served, kedge.pid)}
                found = asyncio.run(measure(arguments, servers, translator))
            finally:
                kedge.terminate()
    model.terminate()
    added = found["kedge serve"]["median_ms"] - found["endpoint"]["median_ms"]
    load = os.getloadavg()[0]
    sizes = f"{arguments.inputs} texts per request, {arguments.at_once} at once"
    print(f"{describe_machine('cpu')}, load {load:.1f}; {sizes}")
    print(markdown_header(("", "ms, median", "ms, 95 %", "requests/s", "CPU ms", "requests", "lost")))
    for name, row in found.items():
        times = (f"{row['median_ms']:.2f}", f"{row['p95_ms']:.2f}", f"{row['requests_per_second']:.0f}")
        print(markdown_row((name, *times, f"{row['cpu_ms']:.2f}", str(row["requests"]), str(row["lost"]))))
    print(f"added: {added:.2f} ms")
    if arguments.out:
        settings = {"inputs": arguments.inputs, "at_once": arguments.at_once, "dims": list(arguments.dims)}
        write_json(arguments.out, settings | {"load": load, "added_ms": added, "servers": found})


if __name__ == "__main__":
    main()
