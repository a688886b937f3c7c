"""The model of one rollout, through the verifiers library's interception server, which has OpenAI's API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from foretrace.core.completion import Completion, Request
from foretrace.core.errors import ModelError, Setting
from foretrace.models.base import Server
from foretrace.models.server_errors import ServerErrors, read_error_message, shorten_line
from foretrace.models.servers.openai import OpenAI

_RELAYED = re.compile(r"upstream \d|Error code: \d|upstream attempt failed")
"""How the library begins an error from a server's response; its other errors are about the connection."""


@dataclass(frozen=True)
class _UpstreamErrors(ServerErrors):
    """Errors of the model server behind the library's server."""

    def from_status(
        self, status: int, body: bytes, *, retry_after: str | None = None, location: str | None = None
    ) -> ModelError:
        """The meaning of an HTTP status: the library's own 503 means that it cannot reach the server."""
        words = shorten_line(self.hide(read_error_message(body)).removesuffix("; invalid_request_error"))
        if status != 503 or _RELAYED.match(words):
            return super().from_status(status, body, retry_after=retry_after, location=location)
        cause = f"the model server cannot be reached ({words or f'HTTP {status}'})"
        return self.make("refused", cause, "start the server, or check ", Setting("base_url"))


class _RecordedReply(NamedTuple):
    """One reply, in the episode's form and in the form that the library recorded."""

    texts: tuple[str, str]
    """Without and with the stop sequence that ended it."""
    message: dict[str, Any]


class InterceptionModel(OpenAI):
    """A ChatModel on the library's interception server, which calls the model server and records the turn.

    Args:
        endpoint: ends in `/v1`.
        secret: the key of this rollout.
        upstream_url: address of the model server itself, for error messages.
        splits_thinking: whether the library's renderer removes `<think>` from a reply. It is restored for the episode,
            but sent back as received, so that the library recognizes its own turn and keeps its tokens.
    """

    accepts_empty = True  # and it is rewarded as such

    def __init__(
        self,
        name: str,
        endpoint: str,
        secret: str,
        *,
        splits_thinking: bool,
        upstream_url: str = "",
        retries: int = 4,
        timeout_s: float = 300.0,
    ) -> None:
        super().__init__(name, Server(base_url=endpoint, api_key=secret, retries=retries, timeout_s=timeout_s))
        place, url = self.http.errors, urlsplit(upstream_url)
        # Without the user name and password that an address may contain.
        host = f"{url.scheme}://{url.netloc.rpartition('@')[2]}" if url.netloc else place.origin
        self.http.errors = _UpstreamErrors(host, place.model, place.adapter, place.key, place.key_variable)
        self._splits_thinking = splits_thinking
        self._replies: list[_RecordedReply] = []

    async def complete(self, request: Request) -> Completion:
        completion = await super().complete(request)
        if not self._splits_thinking:
            return completion
        text, stop = join_thinking(completion), completion.stop or ""
        message = {"role": "assistant", "content": completion.text + stop}
        if completion.reasoning:
            message["reasoning_content"] = completion.reasoning
        self._replies.append(_RecordedReply((text, text + stop), message))
        return msgspec.structs.replace(completion, text=text, reasoning=None)

    def make_chat_body(self, request: Request) -> dict[str, Any]:
        body = super().make_chat_body(request)
        replies = iter(self._replies)
        for number, message in enumerate(body["messages"]):
            if message["role"] != "assistant" or (recorded := next(replies, None)) is None:
                continue
            if message["content"] in recorded.texts:  # otherwise a part was cut off, and the rest is a different turn
                body["messages"][number] = recorded.message
        return body


def join_thinking(completion: Completion) -> str:
    """The reply as the model wrote it, with its thinking in tags."""
    if not completion.reasoning:
        return completion.text
    if completion.finish == "length" and not completion.text:  # cut off while thinking
        return f"<think>{completion.reasoning}"
    return f"<think>{completion.reasoning}</think>\n{completion.text}"
