"""The server of the live page under load: many at once, idle and slow ones, those that go away, and the end of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from kedge.report import Explorer, serve
from kedge.report.live import server

pytest.importorskip("waitress", reason="needs waitress: pip install 'kedge[report]'")


@pytest.fixture(scope="module")
def explorer(fitted, words):
    return Explorer(fitted, *words, run="RUN", max_rows=300)


@contextmanager
def answering(explorer):
    """The port of a server that runs."""
    with serve(explorer, 0) as live:
        thread = threading.Thread(target=live.serve_forever)
        thread.start()
        try:
            yield live.server_port
        finally:
            live.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def port(explorer):
    with answering(explorer) as number:
        yield number


def ask(port, path, method="GET"):
    """Status, headers and body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def is_open(connection):
    """Whether the other end has not closed it."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True


def test_two_hundred_at_once_are_all_answered(port, capfd):
    paths = ["/keys?text=wa", "/", "/near?side=x&row=5", "/key?side=x&key=water"] * 200
    with ThreadPoolExecutor(200) as askers:
        answers = list(askers.map(lambda path: ask(port, path)[0], paths))
    assert answers == [200] * 800
    assert capfd.readouterr() == ("", "")  # no line for each, nor that some had to wait


def test_idle_connections_hold_no_threads(port):
    before = threading.active_count()
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        assert ask(port, "/key?side=x&key=water")[0] == 200
        assert threading.active_count() <= before


def test_slow_requests_keep_nobody_waiting(port):
    before = threading.active_count()
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5)) for _ in range(100)]
        for connection in slow:
            connection.sendall(b"GET /key?side=x&key=wa")
        assert ask(port, "/key?side=x&key=water")[0] == 200
        for connection in slow:
            connection.sendall(f"ter HTTP/1.1\r\nHost: localhost:{port}\r\n".encode())
        assert ask(port, "/key?side=x&key=water")[0] == 200
        assert threading.active_count() <= before
        slow[0].sendall(b"\r\n")
        assert slow[0].recv(100).startswith(b"HTTP/1.1 200 OK")


def test_connections_that_are_silent_are_closed(explorer, monkeypatch):
    monkeypatch.setattr(server, "_IDLE_SECONDS", 1)
    with answering(explorer) as port, ExitStack() as stack:
        idle, slow, used = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5)) for _ in range(3)
        )
        slow.sendall(b"GET / HT")
        used.sendall(f"GET /key?side=x&key=water HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        assert used.recv(10_000).startswith(b"HTTP/1.1 200 OK")
        assert all(map(is_open, (idle, slow, used)))
        deadline = time.monotonic() + 15
        while any(map(is_open, (idle, slow, used))) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_open, (idle, slow, used)))


def test_who_goes_away_is_no_news(port, capfd):
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(f"GET /plotly.js HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            connection.recv(10)
    assert ask(port, "/key?side=x&key=water")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_answers_have_the_headers_that_guard_them(port):
    for path, status in (("/", 200), ("/key?side=x&key=water", 200), ("/key?side=x&key=qqq", 400), ("/run.json", 404)):
        got, headers, body = ask(port, path)
        assert got == status
        assert headers["Content-Length"] == str(len(body))
        assert headers["Server"] == "kedge"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["X-Frame-Options"] == "DENY"
    _, headers, body = ask(port, "/key?side=x&key=water", "HEAD")
    assert (int(headers["Content-Length"]) > 0, body) == (True, b"")


@pytest.mark.parametrize("length", [2**16, 10**6])
def test_a_long_question_gets_an_answer_the_page_understands(port, length):
    status, _, body = ask(port, f"/keys?text={'a' * length}")
    assert (status, set(json.loads(body))) == (414, {"error"})


@pytest.mark.parametrize(
    "lines",
    ["GET / HTTP/1.1\r\nHost: evil.example", "GET / HTTP/1.0", "GET http://127.0.0.1/ HTTP/1.1\r\nHost: evil.example"],
)
def test_other_names_are_refused(port, lines):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(f"{lines}\r\n\r\n".encode())
        assert b" 403 Forbidden\r\n" in connection.recv(1000)


def test_the_threads_end_with_the_server(explorer):
    before = threading.active_count()
    with answering(explorer) as port:
        assert ask(port, "/key?side=x&key=water")[0] == 200
        assert threading.active_count() > before
    deadline = time.monotonic() + 15
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_without_waitress_it_says_what_to_install(explorer, monkeypatch):
    monkeypatch.setitem(sys.modules, "waitress", None)
    with pytest.raises(ImportError, match=r"needs waitress: pip install 'kedge\[report\]'"):
        serve(explorer, 0)


SLOW = """
import sys, threading, time
from kedge.cli.main import main
from kedge.report import Explorer

def look_up(*_):
    print("asked", flush=True)
    time.sleep(60)

Explorer.look_up = look_up
sys.exit(main(["explore", *sys.argv[1:], "--rows", "50"]))
"""


def test_ctrl_c_does_not_wait_for_answers(run_files):
    command = [sys.executable, "-c", SLOW, *run_files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = process.stdout.readline()
        port = int(printed.split(" (")[0].rstrip("/").rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(f"GET /key?side=x&key=water HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            assert process.stdout.readline() == "asked\n"
            os.kill(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert errors.endswith("kedge: stopped\n")
    assert "Traceback" not in errors
