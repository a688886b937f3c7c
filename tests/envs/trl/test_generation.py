"""Where TRL's completions come from, without TRL: a model server, and ids that become a completion."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from envs.tokenizer import demo_tokenizer
from foretrace.core.completion import Completion, Request, Sampling
from foretrace.core.errors import UsageError
from foretrace.envs.trl import server_generate
from foretrace.envs.trl.generation import Generation, make_completion
from foretrace.models.servers.demo import Demo


def test_what_is_used_again_is_closed_again():
    class Closing(Demo):
        closed = 0

        async def close(self) -> None:
            Closing.closed += 1
            await super().close()

    generate = server_generate(Closing())
    for times in (1, 2):
        (output,) = generate([[5]], [Sampling(temperature=1.0, max_tokens=3)], ())
        assert isinstance(output, Completion) and output.token_ids
        generate.close()
        generate.close()
        assert Closing.closed == times


@pytest.mark.parametrize(("answers", "why"), [(False, "start the server"), (True, "HTTP 501")])
def test_a_dead_or_foreign_server_is_the_last_that_is_said(tmp_path: Path, answers: bool, why: str):
    """Its connections are closed where the process ends with the error, after a `close` in between, too."""
    script = (
        "import sys\n"
        "from foretrace.core.completion import Sampling\n"
        "from foretrace.core.errors import ModelError\n"
        "from foretrace.envs.trl import server_generate\n"
        "from foretrace.models.base import Server\n"
        "from foretrace.models.servers.openai import OpenAI\n"
        "generate = server_generate(OpenAI('toy', Server(base_url=sys.argv[1], retries=0)))\n"
        "try:\n"
        "    generate([[5]], [Sampling(temperature=1.0)], ())\n"
        "except ModelError:\n"
        "    generate.close()\n"
        "generate([[5]], [Sampling(temperature=1.0)], ())\n"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=tmp_path)) as foreign:
        serving = threading.Thread(target=foreign.serve_forever)
        serving.start()
        if not answers:
            foreign.shutdown()
            foreign.server_close()
        url = f"http://127.0.0.1:{foreign.server_port}"
        done = subprocess.run([sys.executable, "-c", script, url], capture_output=True, text=True, timeout=120)
        foreign.shutdown()
        serving.join()
    assert done.returncode == 1
    assert why in done.stderr.splitlines()[-1], done.stderr


def request(longest: int = 100) -> Request:
    return Request(prompt_ids=(5,), stop=("</code>",), sampling=Sampling(max_tokens=longest))


def read(text: str, longest: int = 100) -> Any:
    tokenizer = demo_tokenizer()
    ids = tokenizer.encode(text, special=True)
    return make_completion(request(longest), Generation(ids, [-0.5] * len(ids)), tokenizer), ids


def test_a_completion_ends_at_a_stop_sequence_an_end_or_its_limit():
    completion, ids = read("x = 1</code> and more")
    assert (completion.text, completion.finish, completion.stop) == ("x = 1", "stop_sequence", "</code>")
    assert completion.token_ids == tuple(ids[: ids.index(1007) + 1])
    completion, ids = read("done<|im_end|><|endoftext|><|endoftext|>")
    assert (completion.text, completion.finish, completion.token_ids) == ("done", "stop", tuple(ids[:-2]))
    completion, ids = read("one two three four", 2)
    assert (completion.finish, completion.token_ids) == ("length", tuple(ids[:2]))
    completion, ids = read("ended by an end of its own<|endoftext|>")
    assert (completion.finish, completion.token_ids) == ("stop", tuple(ids))
    with pytest.raises(UsageError, match="2 ids and 1 logprobs"):
        make_completion(request(), Generation([5, 6], [-1.0]), demo_tokenizer())
