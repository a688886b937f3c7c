"""The tests' way to the code: what the code's process may do there, and what the parent hears of it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from foretrace.sandbox.inside.wire import direct_channel
from foretrace.sandbox.inside.wire.direct_channel import DirectChannel
from foretrace.sandbox.inside.wire.frames import FrameError, pack_frame

QUESTION = ["q", "get", "x", [], {}, None, None]
ANSWER = ["v", 1, None, None]
GONE = ["gone", "why"]


class Parent:
    """The parent's end of the tests' channel."""

    def __init__(self, *answers: Any) -> None:
        self.heard: list[Any] = []
        self._answers = [*answers]

    def send(self, message: Any) -> None:
        self.heard.append(message)

    def send_all(self, messages: list[Any]) -> None:
        self.heard += messages

    def receive(self) -> Any:
        return self._answers.pop(0)


class Talk:
    def __init__(self, *answers: Any, limit: int = 1000) -> None:
        self.parent = Parent(*answers)
        ours, self.code = socket.socketpair()
        self.channel = DirectChannel(self.parent, ours.detach(), limit)  # type: ignore[arg-type]


@pytest.fixture
def talks() -> Iterator[list[Talk]]:
    made: list[Talk] = []
    yield made
    for talk in made:
        talk.code.close()
        talk.channel.send_all([])


def begin(talks: list[Talk], seconds: float | None = 5.0, **more: Any) -> Talk:
    talk = Talk(["ready", seconds], GONE, **more)
    talks.append(talk)
    talk.channel.send(QUESTION)
    return talk


def test_questions_go_to_the_code_and_all_else_to_the_parent(talks: list[Talk]) -> None:
    talk = begin(talks)
    assert talk.code.recv(1000) == pack_frame(QUESTION) and talk.parent.heard == []
    talk.code.sendall(pack_frame(ANSWER))
    assert talk.channel.receive() == ANSWER
    talk.channel.send(["broken"])
    talk.channel.send_all([["done", None]])
    assert [message[:2] for message in talk.parent.heard] == [["broken"], ["over", "done"], ["done", None]]
    assert talk.code.recv(1) == b"", "the code notices the end"


def test_what_comes_in_pieces_and_together(talks: list[Talk]) -> None:
    talk = begin(talks)
    whole = pack_frame(ANSWER) + pack_frame(QUESTION)
    for byte in whole[:9]:
        threading.Timer(0.01, talk.code.send, [bytes([byte])]).run()
    talk.code.sendall(whole[9:])
    assert [talk.channel.receive(), talk.channel.receive()] == [ANSWER, QUESTION]


@pytest.mark.parametrize(
    "said",
    [
        pack_frame(["gone", "x"]),
        pack_frame(["test", "0", True, None, None, None]),
        pack_frame(["done", None]),
        pack_frame("v"),
        b"\0\0\0\0",
        b'\0\0\0\6["v",{',
        b"\0\0\3\xe9",
        (999).to_bytes(4, "big") + b'["v",' + b"[" * 994,
    ],
    ids=["gone", "test", "done", "text", "empty", "no json", "too long", "deep"],
)
def test_what_is_no_answer(talks: list[Talk], said: bytes) -> None:
    talk = begin(talks)
    talk.code.sendall(said)
    with pytest.raises(FrameError):
        talk.channel.receive()
    assert talk.parent.heard == []


@pytest.mark.parametrize("said", [b"", pack_frame(ANSWER)[:-1]])
def test_a_code_that_ends(talks: list[Talk], said: bytes) -> None:
    talk = begin(talks)
    talk.code.sendall(said)
    talk.code.close()
    assert talk.channel.receive() == GONE
    assert [message[:2] for message in talk.parent.heard] == [["over", "ended"]]
    talk.channel.send(QUESTION)
    assert talk.parent.heard[1] == QUESTION, "from now on by the parent"


def test_a_code_that_is_gone_already(talks: list[Talk]) -> None:
    talk = Talk(["ready", 5.0], GONE)
    talks.append(talk)
    talk.code.close()
    talk.channel.send(QUESTION)
    assert talk.channel.receive() == GONE


@pytest.mark.parametrize("said", [b"", b"\0\0\0\5[", b"reads nothing"])
def test_a_code_that_is_late(talks: list[Talk], said: bytes) -> None:
    talk = Talk(["ready", 0.05], GONE)
    talks.append(talk)
    began = time.monotonic()
    # More than the socket holds: who waits for room there must not wait for ever.
    talk.channel.send(["q", "x" * (1 << 24 if said == b"reads nothing" else 1)])
    if said != b"reads nothing":
        talk.code.sendall(said)
    assert talk.channel.receive() == GONE
    ((_, why, left_s),) = talk.parent.heard
    assert why == "late" and left_s <= 0 and 0.05 <= time.monotonic() - began < 1


def test_the_turns_of_the_code_share_its_time(talks: list[Talk]) -> None:
    talk = begin(talks, 0.1)
    turns = 0
    while True:
        time.sleep(0.03)
        talk.code.sendall(pack_frame(ANSWER))
        if talk.channel.receive() != ANSWER:
            break
        turns += 1
        talk.channel.send(QUESTION)
    assert turns < 8 and talk.parent.heard[0][:2] == ["over", "late"]


def test_the_tests_own_time_is_not_the_codes(talks: list[Talk]) -> None:
    talk = begin(talks, 0.05)
    talk.code.sendall(pack_frame(ANSWER))
    assert talk.channel.receive() == ANSWER
    time.sleep(0.1)
    talk.channel.send(QUESTION)
    talk.code.sendall(pack_frame(ANSWER))
    assert talk.channel.receive() == ANSWER


def test_a_code_that_says_too_much(talks: list[Talk], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_channel, "_MAX_BYTES", 100)
    talk = begin(talks)
    for _ in range(2):
        talk.code.sendall(pack_frame(["v", "x" * 40, None, None]))
        said = talk.channel.receive()
        if said != GONE:
            talk.channel.send(QUESTION)
    assert said == GONE and talk.parent.heard[0][:2] == ["over", "flooded"]


def test_where_there_is_no_such_way(talks: list[Talk]) -> None:
    talk = begin(talks, None)
    assert talk.parent.heard == [QUESTION] and talk.channel.receive() == GONE
    assert talk.code.recv(1) == b""


def test_descriptors_that_the_code_sends_along_are_dropped(talks: list[Talk]) -> None:
    talk = begin(talks)
    before = len(os.listdir("/dev/fd"))
    socket.send_fds(talk.code, [pack_frame(ANSWER)], [0, 1, 2])
    assert talk.channel.receive() == ANSWER and len(os.listdir("/dev/fd")) == before
