"""`llama_cpp.server` silently answers a begun reply with a new turn: it is found out, and inline calls are refused."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Run, run
from foretrace.core.completion import ChatMessage, Request
from foretrace.core.errors import UsageError
from foretrace.models.base import Server
from foretrace.models.servers.openai import OpenAI
from integrations.llama_build import Built, Say, python_server
from integrations.llama_server import NAME, Running
from integrations.llama_server import python_server as running_server

pytestmark = pytest.mark.integration
__all__ = ["run"]
USER = {"role": "user", "content": "Say: ok"}


@pytest.fixture(scope="module")
def server(program: Built, gguf_file: Path, say: Say, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The Python server, on the libraries that llama-server was built with."""
    log = tmp_path_factory.mktemp("python-server") / "server.log"
    with running_server(python_server(program, say), program, gguf_file, log) as running:
        yield running


def prompt_tokens(server: Running, *messages: dict[str, str], **more: Any) -> int:
    """Prompt tokens of a chat that is not streamed: only there does it count them."""
    body = json.dumps({"model": NAME, "messages": messages, "max_tokens": 1} | more).encode()
    request = urllib.request.Request(
        f"{server.url}/v1/chat/completions", body, headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["usage"]["prompt_tokens"]


def test_it_takes_what_asks_for_a_continuation_and_opens_a_new_turn(server: Running) -> None:
    """Why the probe is there: the server says nothing of it."""
    asked = {"continue_final_message": True, "add_generation_prompt": False}
    begun = [
        prompt_tokens(server, USER, {"role": "assistant", "content": text}, **asked) for text in ("1,2", "1,2,3,4")
    ]
    bare = prompt_tokens(server, USER)
    assert begun[1] - begun[0] == 4, "digits and commas are tokens"
    assert begun[0] - bare > 3, "the end of a turn and the head of another were put in"


def test_the_probe_does_not_believe_it(server: Running) -> None:
    async def use() -> None:
        async with OpenAI(NAME, Server(base_url=server.url)) as model:
            found = await model.probe()
            assert not (found.continuation or found.logprobs or found.token_ids or found.token_prompts)
            assert "does not count the tokens of prompts" in found.reasons["continuation"]
            assert "returned none" in found.reasons["logprobs"]
            done = await model.complete(Request(messages=(ChatMessage("user", "Say: ok"),)))
            assert (done.exact, done.token_ids, done.logprobs) == ("none", (), ()) and done.text
            with pytest.raises(UsageError, match="cannot go on with an assistant turn"):
                await model.complete(Request(messages=(ChatMessage("user", "hi"),), prefill="<think>"))

    asyncio.run(use())


def test_inline_calls_are_refused_there_and_turns_are_not(server: Running, tmp_path: Path, run: Run) -> None:
    command = ["generate", "--problems", "builtin", "--limit", 1, "--model", f"openai:{NAME}", "--base-url", server.url]
    command += ["--allow-weak-isolation", "--out", tmp_path / "traces", "--quiet"]
    refused = run(*command, "--protocol", "inline")
    assert refused.code in (1, 2) and refused.out == "" and not (tmp_path / "traces").exists()
    assert "the protocol inline needs" in refused.err and "does not count the tokens of prompts" in refused.err
    assert refused.err.count("\n") == 1
    assert run(*command, "--protocol", "tools").code == 0
