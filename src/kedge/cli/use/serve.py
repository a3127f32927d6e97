"""`kedge serve`: an OpenAI-compatible endpoint that answers in the old space, for stacks that cannot be changed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kedge.cli.arguments import add_command, byte_count, port_number, positive
from kedge.cli.use.translate import add_direction_and_scale

if TYPE_CHECKING:
    import socket

    from kedge.integrations.embedding_server import Upstream

_LOOPBACK = "127.0.0.1"


def add_parser(commands: Any) -> None:
    """Describe the command."""
    parser = add_command(
        commands,
        "serve",
        run,
        "answer OpenAI's /v1/embeddings in Y's space",
        "Answer OpenAI's /v1/embeddings in Y's space: texts go to X's model upstream, and its vectors are translated.",
        """  kedge serve RUN --upstream http://127.0.0.1:8080/v1
  kedge serve RUN --upstream https://api.openai.com/v1 --model text-embedding-3-small --upstream-key-env OPENAI_API_KEY
  kedge serve RUN --host 0.0.0.0 --port 8000 --client-key-env KEDGE_KEY --upstream http://embedder:8080/v1
  kedge serve RUN                                             vectors only: send them as `input`

Point the client's base URL at http://127.0.0.1:PORT/v1; it asks for embeddings as before. GET /health says whether it
runs. Ctrl-C ends it, after the requests in progress. Keys are read from the environment and shown nowhere.
Needs kedge[serve].""",
    )
    parser.add_argument(
        "run_folder", metavar="RUN", type=Path, help="folder written by `kedge discover`, or a file of `kedge export`"
    )
    parser.add_argument("--upstream", metavar="URL", help="base URL of X's model, as for an OpenAI client: .../v1")
    parser.add_argument("--model", metavar="NAME", help="model to ask upstream for (the one the client names)")
    parser.add_argument("--upstream-key-env", metavar="NAME", help="environment variable with upstream's key (none)")
    parser.add_argument("--host", default=_LOOPBACK, help=f"address to answer on ({_LOOPBACK}: this machine only)")
    parser.add_argument("--port", metavar="N", type=port_number, default=0, help="port to answer on (any free one)")
    parser.add_argument(
        "--client-key-env", metavar="NAME", help="environment variable with the key that clients must send (none)"
    )
    add_direction_and_scale(parser)
    parser.add_argument(
        "--trust",
        action="store_true",
        help="add `trust` and `familiarity` to each embedding, for clients that can fall back",
    )
    parser.add_argument(
        "--timeout", metavar="S", type=positive, default=60, help="seconds that upstream has to answer (60)"
    )
    parser.add_argument(
        "--max-inputs", metavar="N", type=positive, default=2048, help="most texts or vectors in one request (2048)"
    )
    parser.add_argument(
        "--max-bytes", metavar="SIZE", type=byte_count, default=32 * 2**20, help="largest request or answer (32M)"
    )
    parser.add_argument(
        "--max-requests",
        metavar="N",
        type=positive,
        default=512,
        help="most requests in progress at once; others get 503 (512)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Load, then answer until interrupted."""
    from kedge.cli.output import note, print_json, print_line
    from kedge.errors import InputError
    from kedge.integrations.embedding_server import LOOPBACK_NAMES, EmbeddingServer, Limits
    from kedge.runs.translators import load_translator

    upstream = _upstream(arguments)
    client_key = _key(arguments.client_key_env, "--client-key-env")
    if arguments.host not in LOOPBACK_NAMES and client_key is None:
        raise InputError(
            f"--host {arguments.host}: others could use it, and your upstream; with --client-key-env, name the "
            "environment variable of a key that they must send"
        )
    translator = load_translator(arguments.run_folder, back=arguments.back, scale=arguments.scale, kind=arguments.kind)
    if arguments.trust and translator.evidence is None:
        raise InputError(
            f"--trust: {arguments.run_folder} does not say how far its translations can be trusted; a run folder does, "
            "from X to Y, if at least 40 pairs could be held out"
        )
    _note_verdict(arguments.run_folder)
    limits = Limits(arguments.max_bytes, arguments.max_inputs, arguments.max_requests)
    server = EmbeddingServer(translator, upstream, limits, client_key, trust=arguments.trust)
    listener = _listen(arguments.host, arguments.port)
    address = f"http://{_in_url(arguments.host)}:{listener.getsockname()[1]}/v1"
    dim_in, dim_out = translator.dims
    if arguments.json:
        print_json({"url": address, "dimensions_in": dim_in, "dimensions_out": dim_out})
    else:
        print_line(f"base URL: {address} ({dim_in} to {dim_out} dimensions; Ctrl-C ends it)")
    server.run(listener)
    note("stopped")
    return 0


def _note_verdict(run: Path) -> None:
    """Say so if the map of a run folder is not ok; for an exported file, `kedge export` said so."""
    from kedge.cli.output import note
    from kedge.runs.description import read_description

    if run.is_dir():
        answer = read_description(run)[1].health.map
        if answer.verdict != "ok":
            note(f"the map of this run is {answer.verdict}: {answer.reason}")


def _upstream(arguments: argparse.Namespace) -> Upstream | None:
    """The endpoint of the new model, if there is one."""
    from urllib.parse import urlsplit

    from kedge.errors import InputError
    from kedge.integrations.embedding_server import Upstream

    if arguments.upstream is None:
        for option in ("model", "upstream_key_env"):
            if getattr(arguments, option) is not None:
                raise InputError(f"--{option.replace('_', '-')} is about --upstream, which is missing")
        return None
    try:
        parts = urlsplit(arguments.upstream)
        port = parts.port
    except ValueError as error:
        raise InputError(f"--upstream {arguments.upstream}: is not a URL ({error})") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise InputError(f"--upstream {arguments.upstream}: must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.query or parts.fragment:
        raise InputError("--upstream: must hold no key and no options; name the key's variable with --upstream-key-env")
    return Upstream(
        arguments.upstream.rstrip("/").removesuffix("/embeddings"),
        model=arguments.model,
        key=_key(arguments.upstream_key_env, "--upstream-key-env"),
        key_variable=arguments.upstream_key_env or "",
        timeout=arguments.timeout,
    )


def _key(variable: str | None, option: str) -> str | None:
    """The key in an environment variable, if one is named."""
    from kedge.errors import InputError

    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"{option} {variable}: the environment has no such variable, or it is empty; export it first")
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"{option} {variable}: the key must be printable ASCII, as headers are")
    return key


def _in_url(host: str) -> str:
    """A host as URLs have it: addresses of IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _listen(host: str, port: int) -> socket.socket:
    """A socket on this address and port."""
    import socket

    from kedge.errors import InputError

    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address, family=family, backlog=512)
    except OSError as error:
        raise InputError(f"--host {host} --port {port}: cannot be used ({error.strerror}); choose others") from error
