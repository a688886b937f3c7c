"""`foretrace serve` as other agents use it: a process on stdin and stdout, and many clients on a socket."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.conftest import write_rows
from sandbox.boxes import until

BEGIN = {"type": "turn_begins", "turn": "1", "messages": [{"role": "user", "content": "Make the tests pass."}]}
LINES = [
    BEGIN,
    {"type": "call", "turn": "1", "name": "bash", "arguments": {"command": "ls"}},
    {"type": "turn_ends", "turn": "1"},
]


def start(*arguments: object) -> subprocess.Popen[bytes]:
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "foretrace", "serve", *map(str, arguments)], **pipes)


def write(lines: Sequence[Any]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def test_stdin_and_stdout(sample_dataset: Path) -> None:
    process = start("markov:2", sample_dataset, "--k", "2")
    out, err = process.communicate(write([*LINES, {"type": "what"}]), timeout=60)
    replies = [json.loads(line) for line in out.splitlines()]
    first, *others = (each for each in replies if each["turn"] == "1")
    assert process.returncode == 0 and len(replies) == 4
    assert first["type"] == "predictions" and len(first["predictions"]) == 2
    assert [each["type"] for each in others] == ["call", "turn_ends"]
    assert b"served 1 turn: 1 call, 0 of them predicted (0 by the first prediction); 1 line refused" in err


def test_it_ends_with_a_signal_while_it_waits_for_stdin(sample_dataset: Path) -> None:
    process = start("majority", sample_dataset)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(write([BEGIN]))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["type"] == "predictions"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0 and process.stderr is not None
    assert b"served 1 turn" in process.stderr.read()


def test_clients_of_a_socket_have_turns_of_their_own(sample_dataset: Path) -> None:
    process = start("majority", sample_dataset, "--socket", "s")
    assert process.stderr is not None
    while b"serving" not in (line := process.stderr.readline()):
        assert line, "it ended"

    def begin(turns: list[str]) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.connect("s")
        client.sendall(write([{**BEGIN, "turn": turn} for turn in turns]))
        return client

    for client in [begin(["1"]), begin(["1"])]:
        with client, client.makefile("rb") as answers:
            assert json.loads(answers.readline())["type"] == "predictions"
    again = start("majority", sample_dataset, "--socket", "s")
    assert b"another service answers there" in again.communicate(timeout=60)[1] and again.returncode == 1
    begin([str(n) for n in range(50)]).close()  # a rude one
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert b"served " in err and b"Traceback" not in err and process.returncode == 0
    assert not Path("s").exists()


SLOW = """
import pathlib, time
class Slow:
    def fit(self, rows):
        while not pathlib.Path("go").exists(): time.sleep(0.01)
    def predict(self, prompt, k):
        return [("retrieval", None, {}, 0.1)]
"""


def test_a_client_may_connect_while_the_predictor_learns(sample_dataset: Path) -> None:
    Path("slow.py").write_text(SLOW)
    process, client = start("slow:Slow", sample_dataset, "--socket", "s", "--json"), socket.socket(socket.AF_UNIX)
    assert until(lambda: client.connect_ex("s") == 0, 60)
    client.sendall(write([BEGIN]))
    Path("go").touch()
    with client, client.makefile("rb") as answers:
        assert json.loads(answers.readline())["type"] == "predictions"
    process.send_signal(signal.SIGINT)
    assert json.loads(process.communicate(timeout=60)[0])["turns"] == 1
    assert not Path("s").exists()


def test_a_model_is_asked(sample_dataset: Path) -> None:
    answer = json.dumps({"action": "file_read", "tool": "bash", "arguments": {"command": "ls"}})
    write_rows(Path("s.jsonl"), [{"turns": [answer], "repeat": True}])
    process = start("scripted:s.jsonl", sample_dataset)
    out, err = process.communicate(write(LINES), timeout=60)
    assert process.returncode == 0, err
    began, call, _ = map(json.loads, out.splitlines())
    assert (began["predictions"][0]["arguments"], began["predictions"][0]["may_run_ahead"]) == ({"command": "ls"}, True)
    assert call["rank"] == 1
