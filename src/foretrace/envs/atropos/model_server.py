"""What Atropos makes for each of its model servers: one of foretrace's models, which rollouts ask themselves."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import msgspec

from foretrace.envs.messages import missing_library_error

try:
    from atroposlib.envs.server_handling.server_baseline import APIServer
except ImportError as missing:
    raise missing_library_error("atroposlib", "atropos", missing) from None

from foretrace.core.errors import UsageError
from foretrace.core.plugins import plugin_names
from foretrace.models.base import ChatModel, Server
from foretrace.registry import make_model, split_spec

_UNSET = ("", "default", "none", "x", None)
"""What Atropos writes where a server's name or key was not given."""


class ForetraceServer(APIServer):
    """A server of Atropos that holds a model. Use `server_for` to say which.

    Raises:
        UsageError: no such kind of model, or a setting that it does not have.
    """

    spec: ClassVar[str] = "openai"
    """KIND or KIND:NAME; a name that is missing is Atropos' `model_name`."""
    settings: ClassVar[Server] = Server()
    """All but the address, which is Atropos' `base_url`, and the key, which may be its `api_key`."""

    def __init__(self, config: Any, reasoning_config: Any = None) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        kind, _, named = self.spec.partition(":")
        is_named = named or kind == "demo" or config.model_name in _UNSET
        given: dict[str, Any] = {}
        if config.base_url not in _UNSET:
            given["base_url"] = config.base_url
        if self.settings.api_key is None and config.api_key not in _UNSET:
            given["api_key"] = config.api_key
        self.model: ChatModel = make_model(
            self.spec if is_named else f"{kind}:{config.model_name}", msgspec.structs.replace(self.settings, **given)
        )

    async def check_server_status_task(self, chat_completion: bool = True) -> None:
        """Nothing to wait for: each server is asked at the start what it can do."""
        self.server_healthy = True

    async def _refuse(self, **kwargs: Any) -> NoReturn:
        raise UsageError("the rollouts of this environment ask the model itself, and not Atropos' server")

    _chat_completion_wrapper = _completion_wrapper = _tokens_and_logprobs_completion_wrapper = _refuse


def server_for(spec: str, settings: Server) -> type[ForetraceServer]:
    """A server class for `BaseEnv.server_cls`.

    Args:
        spec: KIND or KIND:NAME, e.g. `ollama:qwen3-coder` (docs/models.md).
        settings: All but the address.

    Raises:
        UsageError: no such kind of model.
    """
    split_spec(spec, plugin_names("model"))
    return type("ForetraceServer", (ForetraceServer,), {"spec": spec, "settings": settings})
