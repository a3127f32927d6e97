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
from contextlib import ExitStack, contextmanager, suppress

import pytest

from kedge.report import Explorer, serve
from kedge.report.live import server


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


def threads_that_answer() -> int:
    return sum(thread.name == server.ANSWERING for thread in threading.enumerate())


def ask(port, path, method="GET", timeout=20):
    """Status, headers and body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
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
    except OSError:
        return False


def test_two_hundred_at_once_are_all_answered(port, capfd):
    paths = ["/keys?text=wa", "/", "/near?side=x&row=5", "/key?side=x&key=water"] * 200
    with ThreadPoolExecutor(200) as askers:
        answers = list(askers.map(lambda path: ask(port, path)[0], paths))
    assert answers == [200] * 800
    assert capfd.readouterr() == ("", "")  # no line for each, nor that some had to wait


def test_old_and_new_results_are_ten_each(port, words):
    row = words[0].row_of["water"]
    status, _, body = ask(port, f"/results?row={row}")
    assert (status, {name: len(found) for name, found in json.loads(body).items()}) == (200, {"new": 10, "old": 10})
    for wrong in ("", "?row=", "?row=-1", "?row=2000", "?row=water", f"?row={'9' * 5000}"):
        status, _, body = ask(port, f"/results{wrong}")
        assert status == 400
        assert "row must be a whole number below 2000" in json.loads(body)["error"]


def test_idle_connections_hold_no_threads(port):
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        assert ask(port, "/key?side=x&key=water")[0] == 200
        assert threads_that_answer() <= 1  # not one per connection; the last one may be about to end


def test_slow_requests_keep_nobody_waiting(port):
    with ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5)) for _ in range(100)]
        for connection in slow:
            connection.sendall(b"GET /key?side=x&key=wa")
        assert ask(port, "/key?side=x&key=water")[0] == 200
        for connection in slow:
            connection.sendall(f"ter HTTP/1.1\r\nHost: localhost:{port}\r\n".encode())
        assert ask(port, "/key?side=x&key=water")[0] == 200
        assert threads_that_answer() <= 1  # not one per connection; the last one may be about to end
        slow[0].sendall(b"\r\n")
        assert slow[0].recv(100).startswith(b"HTTP/1.1 200 OK")


def test_connections_that_are_silent_are_closed(explorer, monkeypatch):
    monkeypatch.setattr(server, "_HEAD_SECONDS", 1)
    with answering(explorer) as port, ExitStack() as stack:
        idle, slow, dripping = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5)) for _ in range(3)
        )
        slow.sendall(b"GET / HT")
        assert all(map(is_open, (idle, slow, dripping)))
        deadline = time.monotonic() + 15
        while any(map(is_open, (idle, slow, dripping))) and time.monotonic() < deadline:
            with suppress(OSError):  # closed by now
                dripping.sendall(b"G")  # a letter now and then does not keep it open
            time.sleep(0.05)
        assert not any(map(is_open, (idle, slow, dripping)))


def test_answers_that_nobody_takes_are_given_up(explorer, monkeypatch):
    monkeypatch.setattr(server, "_STALLED_SECONDS", 0.5)
    with answering(explorer) as port, socket.socket() as deaf, socket.socket() as lazy:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for connection, path in ((deaf, "/plotly.js"), (lazy, "/key?side=x&key=water")):
            connection.connect(("127.0.0.1", port))
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
        lazy.settimeout(20)
        got = b""
        while part := lazy.recv(10_000):  # it ends although this end does not close it
            got += part
        assert got.startswith(b"HTTP/1.1 200 OK")
        time.sleep(2)
        deaf.settimeout(20)
        taken = 0
        with suppress(ConnectionResetError):
            while part := deaf.recv(2**20):
                taken += len(part)
        assert taken < len(ask(port, "/plotly.js")[2])


@pytest.mark.parametrize("sent", [b"", b"GET /key?si", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_thousand_half_open_connections_stop_nobody(port, capfd, sent):
    with ExitStack() as stack:
        for number in range(1000):
            half = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            with suppress(OSError):  # the oldest are closed to make room
                half.sendall(sent)
            if number % 250 == 0:
                assert ask(port, "/key?side=x&key=water", timeout=10)[0] == 200
        assert [ask(port, path, timeout=10)[0] for path in ("/", "/keys?text=wa", "/plotly.js")] == [200] * 3
    assert capfd.readouterr() == ("", "")


def test_connections_have_a_bound_and_those_that_asked_are_answered(explorer, monkeypatch):
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 5)
    asked, enough = threading.Semaphore(0), threading.Event()

    def find(text):
        asked.release()
        enough.wait(20)
        return [text]

    monkeypatch.setattr(explorer, "find", find)
    with answering(explorer) as port, ExitStack() as stack:

        def connect(text=b""):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            connection.sendall(text)
            return connection

        question = f"GET /keys?text=wa HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode()
        asking = [connect(question) for _ in range(3)]
        assert all(asked.acquire(timeout=20) for _ in asking)
        idle = [connect() for _ in range(10)]
        assert ask(port, "/key?side=x&key=water")[0] == 200
        deadline = time.monotonic() + 15
        while sum(map(is_open, idle)) > 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sum(map(is_open, idle)) <= 2  # of five, three are asking
        enough.set()
        for connection in asking:
            assert connection.recv(10_000).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "lines",
    [
        "GET",
        "GET /",
        "GET / HTTP/2",
        "GET http://[ HTTP/1.1",
        "\xe9 / HTTP/1.1",
        "\r\nGET / HTTP/1.1",
        "GET / HTTP/1.1\r\n" + "\r\n".join(f"A{number}: 1" for number in range(200)),
    ],
)
def test_what_is_no_request_is_refused(port, capfd, lines):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"{lines}\r\n\r\n".encode("latin-1"))
        assert b" 400 Bad Request\r\n" in connection.recv(1000)
    assert capfd.readouterr() == ("", "")


def test_a_body_is_not_read_and_the_answer_arrives(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("POST", "/", body=b"x" * 10**6)
    answer = connection.getresponse()
    assert (answer.status, set(json.loads(answer.read()))) == (501, {"error"})
    connection.close()


def test_what_fails_in_an_answer_is_told_to_both(explorer, monkeypatch, caplog):
    def fail(text):
        raise RuntimeError(f"cannot {text}")

    monkeypatch.setattr(explorer, "find", fail)
    with answering(explorer) as port:
        status, _, body = ask(port, "/keys?text=do")
        assert (status, set(json.loads(body))) == (500, {"error"})
        assert ask(port, "/key?side=x&key=water")[0] == 200
    assert "cannot do" in caplog.text


def test_two_names_at_once_are_none(port):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: localhost:{port}\r\nHost: evil.example\r\n\r\n".encode())
        assert b" 403 Forbidden\r\n" in connection.recv(1000)


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
    before = set(threading.enumerate())
    with answering(explorer) as port:
        assert ask(port, "/key?side=x&key=water")[0] == 200
        assert set(threading.enumerate()) - before
    deadline = time.monotonic() + 15
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not set(threading.enumerate()) - before


SLOW = """
import sys, threading, time
from kedge.cli.main import entry_point
from kedge.report import Explorer

def look_up(*_):
    print("asked", flush=True)
    time.sleep(60)

Explorer.look_up = look_up
sys.argv = ["kedge", "explore", *sys.argv[1:], "--rows", "50"]
entry_point()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_it_does_not_wait_for_answers(run_files, number):
    command = [sys.executable, "-c", SLOW, *run_files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed = process.stdout.readline()
        port = int(printed.split(" (")[0].rstrip("/").rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(f"GET /key?side=x&key=water HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
            assert process.stdout.readline() == "asked\n"
            os.kill(process.pid, number)
            _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert errors.endswith("kedge: stopped\n")
    assert "Traceback" not in errors
