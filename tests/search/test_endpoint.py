"""A fake OpenAI-compatible server: what is sent to it, and what becomes of each way in which it fails."""

import json
import re
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from toy_search import Guess, HereScorer, toy_config, toy_writer

from esopt_jax.errors import EsoptError, StoppedError
from esopt_jax.search.config import WriterConfig
from esopt_jax.search.endpoint import EndpointWriter
from esopt_jax.search.loop import search
from esopt_jax.search.writer import Request

MESSAGES = ({"role": "user", "content": "Write."},)


def completion(text, finish="stop"):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return 200, {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


@contextmanager
def server(respond):
    """A server on a free port; `respond(body, number)` gives (status, JSON or bytes). Yields its address and log."""
    bodies, lock = [], threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                bodies.append({**body, "path": self.path, "key": self.headers["Authorization"]})
                number = len(bodies)
            status, answer = respond(body, number)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            with suppress(BrokenPipeError):  # a client that gave up
                self._send(status, data)

        def _send(self, status, data):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1", bodies
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@pytest.fixture
def quick(monkeypatch):
    """The client's pauses, without the waiting."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.001)


def writer(url, **changes):
    settings = {"backend": "endpoint", "model": "m", "base_url": url, "retries": 2, "timeout_s": 5.0}
    return EndpointWriter(WriterConfig(**{**settings, **changes}))


def requests(count):
    return [Request(MESSAGES, seed, temperature=0.5, top_p=0.9, max_tokens=12) for seed in range(count)]


def test_what_is_sent_and_what_comes_back(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "secret")
    texts = {0: ("a", "stop"), 1: ("b", "length"), 2: (None, "stop")}
    with server(lambda body, _: completion(*texts[body["seed"]])) as (url, bodies):
        replies = writer(url, api_key_env="SOME_KEY").write(requests(3))
    assert [(reply.text, reply.ended, reply.error) for reply in replies] == [
        ("a", "stop", None),
        ("b", "length", None),
        ("", "stop", None),
    ]
    sent = next(body for body in bodies if body["seed"] == 1)
    assert sent == {
        "model": "m",
        "messages": [dict(MESSAGES[0])],
        "seed": 1,
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 12,
        "path": "/v1/chat/completions",
        "key": "Bearer secret",
    }


def test_a_failure_that_passes_is_asked_again(quick):
    with server(lambda body, number: (503, {}) if number < 3 else completion("a")) as (url, bodies):
        assert [reply.text for reply in writer(url).write(requests(1))] == ["a"]
    assert len(bodies) == 3


@pytest.mark.parametrize(
    ("status", "answer", "message"),
    [
        (500, {}, r"answered 500"),
        (401, {"error": {"message": "no\nkey"}}, r"answered 401: .*no"),
        (400, {"error": {"message": "too long"}}, r"answered 400: .*too long"),
        (200, {"choices": []}, r"sent is no chat completion"),
        (200, b"<html>", r"sent is no chat completion"),
    ],
)
def test_a_failure_that_stays_is_told(quick, status, answer, message):
    with server(lambda body, _: (status, answer)) as (url, _):
        (reply,) = writer(url).write(requests(1))
    assert reply.text == "" and url in reply.error and "\n" not in reply.error
    assert re.search(message, reply.error)


def test_nobody_is_there(quick):
    with server(lambda body, _: completion("a")) as (url, _):
        pass
    (reply,) = writer(url, retries=1).write(requests(1))
    assert f"the endpoint {url} does not answer" in reply.error and "asked 2 times" in reply.error


def test_a_server_that_hangs_is_given_up(quick):
    gone = threading.Event()

    def hang(body, number):
        gone.wait(20)
        return completion("late")

    with server(hang) as (url, _):
        start = time.monotonic()
        (reply,) = writer(url, retries=1, timeout_s=0.2).write(requests(1))
        took = time.monotonic() - start
        gone.set()
    assert "does not answer" in reply.error and took < 15


def test_requests_run_at_once_up_to_the_concurrency():
    running, most, lock = 0, 0, threading.Lock()

    def slow(body, number):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
        return completion(str(body["seed"]))

    with server(slow) as (url, _):
        replies = writer(url, concurrency=3).write(requests(9))
    assert [reply.text for reply in replies] == [str(seed) for seed in range(9)]
    assert most == 3


def test_after_a_failure_no_more_is_asked(quick):
    def respond(body, number):
        return completion("a") if number == 1 else (401, {})

    with server(respond) as (url, bodies):
        replies = writer(url, concurrency=1).write(requests(20))
    assert replies[0].text == "a" and all(reply.error for reply in replies[1:])
    assert len(bodies) < 10


def test_a_search_whose_endpoint_dies_goes_on_when_it_is_back(tmp_path, quick):
    config = toy_config(budget=40)

    def respond(dies):
        def answer(body, number):
            if dies and number > 25:
                return 500, {}
            request = Request(tuple(body["messages"]), body["seed"])
            return completion(toy_writer().write([request])[0].text)

        return answer

    def play(folder, url, **kwargs):
        at = {"brief": Guess(), "scorer": HereScorer(), "writer": writer(url, concurrency=2, retries=0)}
        return search(config, folder, **at, **kwargs)

    with (
        server(respond(True)) as (url, _),
        pytest.raises(StoppedError, match=r"answered 500.*answers came and are kept"),
    ):
        play(tmp_path / "dies", url)
    with server(respond(False)) as (url, bodies):
        resumed = play(tmp_path / "dies", url, resume=True)
        assert len(bodies) == 15
        assert resumed == play(tmp_path / "whole", url)


def test_what_is_wrong_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(EsoptError, match="api_key_env is 'NO_SUCH_KEY', but there is no such environment variable"):
        writer("http://127.0.0.1:1/v1", api_key_env="NO_SUCH_KEY")
    with pytest.raises(EsoptError, match=r"base_url is 'localhost'; it must begin with http://"):
        writer("localhost")


def test_without_the_client_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(EsoptError, match=r"pip install 'esopt-jax\[endpoint\]'"):
        writer("http://127.0.0.1:1/v1")
