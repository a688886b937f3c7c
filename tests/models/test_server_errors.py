"""Each way in which a server fails: one clear line, the right kind, retried or not, and never the key."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

import foretrace
from fakes.model_server import KEY, ModelServer
from foretrace.core.errors import ModelError, Setting, UsageError
from foretrace.models.base import Server
from foretrace.models.server_errors import ServerErrors, public_cause, public_message
from foretrace.models.servers.ollama import Ollama
from foretrace.models.servers.openai import OpenAI
from models.served import ADAPTERS, PATHS, asking, at, model_at

SOURCE = str(Path(foretrace.__file__).parent)
USED_UP = '{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'
BUSY = '{"error": "timed out waiting for a concurrent request slot"}'
ECHO = '{"error": "no: Bearer ' + KEY + '"}'

Case = tuple[dict[str, Any], str, bool, str]
"""Fault, kind, retryable, and words of the message."""
CASES: dict[str, Case] = {
    "wrong key": ({"status": 401, "body": ECHO}, "bad_key", False, "give a valid key"),
    "forbidden": ({"status": 403, "body": ECHO}, "bad_key", False, "give a valid key"),
    "no such path": ({"status": 404, "body": "404 page not found"}, "not_found", False, "check that this is"),
    "no such model": ({"status": 404, "body": '{"error": "model not found"}'}, "not_found", False, "that it lists"),
    "busy": ({"status": 429, "body": BUSY}, "busy", True, "it is busy: lower concurrency"),
    "overloaded": ({"status": 503, "body": '{"error": "server busy"}'}, "busy", True, "it is busy: lower concurrency"),
    "payment": ({"status": 402, "body": "{}"}, "quota", False, "is used up"),
    "used up": ({"status": 429, "body": USED_UP, "headers": {"Retry-After": "3600"}}, "quota", False, "is used up"),
    "broken": ({"status": 500, "body": ECHO}, "server", True, "HTTP 500 'no: Bearer ***'"),
    "bad gateway": ({"status": 502, "body": "<html><h1>Bad gateway</h1></html>"}, "server", True, "'Bad gateway'"),
    "bad request": ({"status": 400, "body": '{"error": "top_p?"}'}, "bad_request", False, "top_p?"),
    "redirect": ({"status": 302, "headers": {"Location": "http://evil/"}}, "redirect", False, "a redirect to http://evil/"),
    "cut": ({"how": "cut"}, "stream", True, "broke off in mid-reply"),
    "ended early": ({"how": "end", "after": 2}, "stream", True, "ended before the reply did"),
    "empty": ({"how": "nothing"}, "stream", True, "holds nothing of a completion"),
    "of another service": ({"how": "other"}, "stream", True, "holds nothing of a completion"),
    "dropped": ({"how": "drop"}, "stream", True, "broke off"),
    "error in mid-stream": ({"how": "error"}, "server", True, "stopped with"),
    "error, then cut": ({"how": "error cut"}, "server", True, "stopped with"),
    "error, then silence": ({"how": "error stall"}, "server", True, "stopped with"),
    "not JSON": ({"how": "html"}, "bad_reply", False, "not JSON but '<html>"),
    "not text": ({"how": "binary"}, "bad_reply", False, "not JSON"),
    "silence": ({"how": "hang"}, "timeout", True, "no answer for 0.1 s"),
    "silence in mid-stream": ({"how": "stall"}, "timeout", True, "no answer for 0.1 s"),
}  # fmt: skip


def failure(kind: str, server: ModelServer, url: str = "", call: str = "complete", **settings: Any) -> ModelError:
    """How a call fails, after a look that it names host and model, on one line, and hides the key."""

    async def use(running: ModelServer) -> ModelError:
        address = url or running.url
        async with model_at(kind, address.replace("PORT", running.url.rpartition(":")[2]), **settings) as model:
            with pytest.raises(ModelError) as caught:
                # Less than the patience with a silent server: what it said before the silence counts.
                async with asyncio.timeout(20):
                    await (model.probe() if call == "probe" else model.complete(asking()))
            assert model.endpoint in str(caught.value) and f"model {model.name}" in str(caught.value)
            hides(caught.value, model)
            return caught.value

    return at(server, use)


def hides(error: BaseException, *others: object) -> None:
    """The key is in no message, no repr, no log, and no local that a traceback could show."""
    assert "\n" not in str(error)
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [frame for frame in shown.stack if SOURCE in frame.filename]
    assert ours and error.__context__ is None
    for text in (str(error), repr(error), *(repr(frame.locals) for frame in ours), *map(repr, others)):
        assert KEY not in text


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("case", CASES)
def test_a_failure_is_one_clear_line(kind: str, case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    how, slug, retryable, words = CASES[case]
    server = ModelServer(say=lambda asked: "one two three")
    server.fault(PATHS[kind], times=-1, **how)
    timeout_s = 0.1 if slug == "timeout" else 30.0
    error = failure(kind, server, api_key=KEY, retries=1, timeout_s=timeout_s)
    assert (error.kind, error.retryable) == (slug, retryable) and words in str(error)
    assert len(server.sent(PATHS[kind])) == (2 if retryable else 1)
    assert KEY not in caplog.text


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize(
    ("server", "settings", "slug", "words"),
    [
        ({"say": lambda asked: ""}, {"retries": 1}, "empty", "the completion is empty"),
        ({}, {"name": "toi", "call": "probe"}, "not_found", "toy"),
        ({}, {"url": "http://127.0.0.1:1", "retries": 1}, "refused", "start the server, or check the base URL"),
        ({}, {"url": "http://127.0.0.1:1", "call": "probe"}, "refused", "start the server, or check the base URL"),
        ({}, {"url": "https://127.0.0.1:PORT"}, "tls", "use http://"),
        ({}, {"url": "http://no-such-host.invalid"}, "dns", "check the base URL"),
        ({"key": "another"}, {}, "bad_key", "give a valid key"),
        ({"key": "another"}, {"call": "probe"}, "bad_key", "give a valid key"),
        ({"context": 1}, {}, "overflow", "the prompt is longer than the context: raise "),
    ],
)
def test_a_failure_at_any_place_is_one_clear_line(
    kind: str, server: dict[str, Any], settings: dict[str, Any], slug: str, words: str
) -> None:
    own = {"context_length": 1} if kind == "ollama" and slug == "overflow" else {}
    error = failure(kind, ModelServer(**server), api_key=KEY, **settings, **own)
    assert error.kind == slug and words in str(error)


@pytest.mark.parametrize("kind", ADAPTERS)
def test_what_passes_is_tried_again_and_told(kind: str) -> None:
    async def use(server: ModelServer) -> None:
        server.fault(PATHS[kind], status=429, body=BUSY, headers={"Retry-After": "0.3"})
        server.fault(PATHS[kind], how="cut")
        server.latency_s = lambda number: 0.02
        async with model_at(kind, server.url) as model:
            begun = time.monotonic()
            found = await model.complete(asking())
            took = time.monotonic() - begun
        assert found.text == "ok" and found.extra["retried"] == ["busy", "stream"]
        assert took >= 0.3, "the wait that the server asks for is kept"
        assert 0.02 <= found.seconds < took / 2  # of the last attempt alone

    at(ModelServer(), use)


@pytest.mark.parametrize("kind", ADAPTERS)
@pytest.mark.parametrize("logprobs", [True, False])
def test_a_reply_of_a_megabyte_is_not_believed(kind: str, logprobs: bool) -> None:
    class Deaf(ModelServer):
        """Ignores the limit."""

        async def _reply(self, *args: Any) -> tuple[str, str, str]:
            return "x" * 1_000_000, "stop", ""

    error = failure(kind, Deaf(logprobs=logprobs))
    assert (error.kind, error.retryable) == ("too_long", False)
    assert ("bytes" if logprobs else "1,000,000 characters, for at most 50 tokens") in str(error)


HOMES = [(Ollama, "OLLAMA_API_KEY", "https://ollama.com"), (OpenAI, "OPENAI_API_KEY", "https://api.openai.com")]


@pytest.mark.parametrize(("adapter", "variable", "home"), HOMES, ids=["ollama", "openai"])
def test_a_key_of_the_environment_goes_to_its_own_host_only(
    adapter: type, variable: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, KEY)
    host = home.removeprefix("https://")
    assert adapter("m", Server(base_url=home)).http.errors.key is not None
    for other in (f"http://{host}", f"https://{host}.evil.example", f"https://evil-{host}", "http://127.0.0.1:1"):
        assert adapter("m", Server(base_url=other)).http.errors.key is None, other

    async def use(server: ModelServer) -> None:
        async with model_at(adapter.kind, server.url) as model:
            await model.complete(asking())
        assert all("Authorization" not in seen.headers for seen in server.requests)

    at(ModelServer(), use)


@pytest.mark.parametrize("key", ["two words", "line\nend", "schlüssel-" + KEY])
def test_a_key_that_is_none_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(UsageError, match="API key") as caught:
        OpenAI("m", Server(api_key=key))
    assert key not in str(caught.value) and key not in repr(Server(api_key=key))


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://u:pass@host", "http://h/?key=1", "http://h:notaport"])
def test_a_base_url_that_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="base URL") as caught:
        OpenAI("m", Server(base_url=url))
    assert "pass" not in str(caught.value).replace("password", "")


def test_names_and_options_that_are_none() -> None:
    with pytest.raises(UsageError, match="backoff_s, keep_alive, think"):
        Ollama("m", Server(options={"thinking": "true"}))
    with pytest.raises(UsageError, match="backoff_s is a number, not 'soon'"):
        Ollama("m", Server(options={"backoff_s": "soon"}))
    with pytest.raises(UsageError, match="name the model: ollama:NAME"):
        Ollama("", Server())


@pytest.mark.parametrize("kind", ADAPTERS)
def test_a_connection_that_is_closed_behind_a_reply_loses_no_request(kind: str) -> None:
    """As llama-server does, without saying so before."""

    async def use(server: ModelServer) -> None:
        async with model_at(kind, server.url, retries=0) as model:
            for _ in range(5):
                assert (await model.complete(asking())).text == "ok"

    at(ModelServer(like_llama=True), use)


def test_what_is_stored_has_no_address() -> None:
    near, far = (
        ServerErrors(host, "m", "openai", None, "").from_status(
            500, b"ask http://10.1.2.3:8000/v1, 10.1.2.3:8000 or https://intern.example:9/x"
        )
        for host in ("http://10.1.2.3:8000", "https://far.example")
    )
    assert "http://10.1.2.3:8000, model m" in str(near)
    cause = "HTTP 500 'ask (address) (address) or (address)'"
    assert public_cause(near) == cause and public_message(far) != str(far)
    assert public_message(near) == f"model m: {cause}; see the server's log, or try again"
    assert public_message(ModelError("another's")) == public_cause(ModelError("another's")) == "another's"


def test_both_messages_write_their_settings_in_the_style_of_the_front_end() -> None:
    error = ServerErrors("http://10.1.2.3:8000", "m", "ollama", None, "").from_status(400, b"context_length_exceeded")
    advice = "model m: HTTP 400 'context_length_exceeded'; the prompt is longer than the context: raise {}, or lower {}"
    named = advice.format("context_length", "max_turns")
    assert (str(error), public_message(error)) == (f"http://10.1.2.3:8000, {named}", named)

    def style(setting: Setting) -> str:
        return f"--{setting.name}"

    flags = advice.format("--context_length", "--max_turns")
    assert (error.render(style), public_message(error, style)) == (f"http://10.1.2.3:8000, {flags}", flags)
