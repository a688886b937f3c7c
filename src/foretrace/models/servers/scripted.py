"""A model that replays a script. Its answers depend only on the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from foretrace.core.completion import Capabilities, ChatMessage, Completion, Request
from foretrace.core.digest import hash_fraction
from foretrace.core.errors import ModelError, UsageError
from foretrace.core.trace import Usage
from foretrace.models.base import ClosingModel, Server
from foretrace.models.completion_builder import cut_at_stop

_LOGPROB = -0.25
_HEAD, _END = "<|start|>", "<|end|>"
_REPLY = f"{_HEAD}assistant\n"


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One completion of a script."""

    text: str
    reasoning: str | None = None


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One episode: the model's text, turn by turn."""

    turns: list[Turn | str]
    match: str = ""
    """Use this script only for episodes with this text in a message that is not the model's, e.g. a function name."""
    repeat: bool = False
    """After the last turn, repeat it; otherwise that is an error."""


RespondFunction = Callable[[Request], str | Completion]


class Scripted(ClosingModel):
    """A model that says what its script says (see `base.ChatModel`; `base.TokenModel` with the option `tokens=bytes`).

    One of the scripts whose `match` fits is chosen by `seed` modulo their number; without a seed, by a digest of the
    first user message. The turn is the number of assistant messages so far. Inside a prefill or a prompt of ids, the
    turns that it already contains, in order, are skipped too.
    """

    endpoint = ""

    def __init__(
        self, name: str, server: Server | None = None, *, scripts: Sequence[Script] | RespondFunction = ()
    ) -> None:
        self.name = name
        self.spec = f"scripted:{name}"
        server = server or Server()
        if server.list_settings_except("options"):
            what = "base URL, key, context length, timeout or retries"
            raise UsageError(f"a scripted model asks no server: it takes no {what}")
        options = dict(server.options)
        tokens = options.pop("tokens", None)
        if options or tokens not in (None, "bytes"):
            raise UsageError("a scripted model has one option: tokens=bytes")
        self._tokens = tokens == "bytes"
        self._respond = scripts if callable(scripts) else None
        self._scripts = [] if callable(scripts) else list(scripts) or read_scripts(Path(name))

    @classmethod
    def of(cls, *episodes: Sequence[str], tokens: bool = False) -> Self:
        """A model from lists of texts, one for each episode."""
        server = Server(options={"tokens": "bytes"} if tokens else {})
        return cls("texts", server, scripts=[Script(turns=list(texts)) for texts in episodes])

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"options": {"tokens": "bytes"}} if self._tokens else {}

    async def probe(self) -> Capabilities:
        why = "a script has no tokens: give the option tokens=bytes to simulate them"
        names = ("logprobs", "token_ids", "token_prompts")
        return Capabilities(
            logprobs=self._tokens,
            token_ids=self._tokens,
            token_prompts=self._tokens,
            continuation=True,
            reasoning_apart=True,
            reasons={} if self._tokens else dict.fromkeys(names, why),
        )

    async def complete(self, request: Request) -> Completion:
        """The script's next turn (see `base.ChatModel.complete`); takes 0.0 seconds.

        Raises:
            ModelError: the script has no more turns, or no script fits (kind `script`).
        """
        await asyncio.sleep(0)  # let others run, as a real server would
        if request.prompt_ids is not None and not self._tokens:
            raise UsageError(f"{self.spec} takes token ids only with the option tokens=bytes")
        if self._respond is not None:
            answer = self._respond(request)
            if isinstance(answer, Completion):
                return answer
            return self._make_completion(request, Turn(text=answer))
        before, begun = _find_position(request)
        script = self._choose_script(request)
        turns = [turn if isinstance(turn, Turn) else Turn(text=turn) for turn in script.turns]
        number = before + (_count_turns(begun, turns[before:], request) if begun else 0)
        if number >= len(turns) and not (script.repeat and turns):
            cause = f"{self.spec}: the script has {len(turns)} turns, and turn {number + 1} is asked for"
            raise ModelError(f"{cause}; write more turns, or repeat: true", kind="script")
        return self._make_completion(request, turns[min(number, len(turns) - 1)])

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        return list(text.encode())

    async def render(self, messages: Sequence[ChatMessage]) -> list[int]:
        """The bytes of messages in a template of our own."""
        past = "".join(f"{_HEAD}{m.role}\n{m.content}{_END}\n" for m in messages)
        return list(f"{past}{_REPLY}".encode())

    def _choose_script(self, request: Request) -> Script:
        given = [m.content for m in request.messages if m.role != "assistant"]
        if request.prompt_ids is not None:
            given = [_decode(request.prompt_ids).rpartition(_REPLY)[0]]
        fitting = [s for s in self._scripts if any(s.match in text for text in given)]
        if not fitting:
            raise ModelError(f"{self.spec}: no script matches this episode; add one without match", kind="script")
        seed = request.sampling.seed
        if seed is None:
            first = next((m.content for m in request.messages if m.role == "user"), given[0])
            seed = int(hash_fraction(first) * len(fitting))
        return fitting[seed % len(fitting)]

    def _make_completion(self, request: Request, turn: Turn) -> Completion:
        text, stop = cut_at_stop(turn.text, request.stop)
        ids = tuple(text.encode()) if self._tokens else ()
        return Completion(
            text=text,
            reasoning=turn.reasoning,
            finish="stop" if stop is None else "stop_sequence",
            stop=stop,
            token_ids=ids,
            logprobs=(_LOGPROB,) * len(ids) if request.logprobs else (),
            prompt_token_ids=request.prompt_ids,
            exact="token" if self._tokens else "none",
            usage=Usage(completion_tokens=len(text.split())) if not ids else Usage(completion_tokens=len(ids)),
            model=self.name,
        )


def read_scripts(path: Path) -> list[Script]:
    """Scripts of a JSONL file, one episode per line: a list of texts, `{"text": ...}` for one turn, or a `Script`."""
    if path == Path():
        raise UsageError("a scripted model replays a file: name it, as scripted:FILE")
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the script {path}: {error.strerror or error}") from None
    scripts = list(_parse_scripts(path, lines))
    if not scripts:
        raise UsageError(f"the script {path} has no line")
    return scripts


def _parse_scripts(path: Path, lines: Iterable[bytes]) -> Iterable[Script]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            match line.lstrip()[:1]:
                case b"[":
                    script = Script(turns=msgspec.json.decode(line, type=list[Turn | str]))
                case b"{" if b'"turns"' in line:
                    script = msgspec.json.decode(line, type=Script)
                case _:
                    script = Script(turns=[msgspec.json.decode(line, type=Turn)])
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            form = 'a list of texts, {"text": ...} or {"turns": [...]}'
            raise UsageError(f"{path}, line {number}: give {form}: {error}") from None
        yield script


def _find_position(request: Request) -> tuple[int, str]:
    """Number of assistant turns before the reply, and the part of the reply that is already in the prompt."""
    if request.prompt_ids is not None:
        past, _, begun = _decode(request.prompt_ids).rpartition(_REPLY)
        return past.count(_REPLY), begun
    return sum(m.role == "assistant" for m in request.messages), request.prefill


def _count_turns(begun: str, turns: Sequence[Turn], request: Request) -> int:
    """Number of turns that the reply so far contains, in order. Text that was injected between them is skipped."""
    at = 0
    for number, turn in enumerate(turns):
        text, _ = cut_at_stop(turn.text, request.stop)
        found = begun.find(text, at)
        if found < 0:
            return number
        at = found + len(text)
    return len(turns)


def _decode(ids: Sequence[int]) -> str:
    try:
        return bytes(ids).decode("utf-8", "replace")
    except ValueError:
        raise UsageError("the ids of a scripted model are bytes, 0 to 255") from None


PLUGIN = Scripted
