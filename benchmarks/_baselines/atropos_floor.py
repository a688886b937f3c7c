"""An Atropos environment that does nothing: it sends the group of a file, again and again."""
# pyright: reportMissingImports=false, reportUntypedBaseClass=false

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig


class FloorConfig(BaseEnvConfig):
    """Atropos' own settings, and the group."""

    group_path: str = ""


class FloorEnv(BaseEnv):
    """All that an environment must have."""

    name = "floor"
    env_config_cls = FloorConfig

    @classmethod
    def config_init(cls) -> Any:
        """Atropos' way to ask for the defaults."""
        return cls.env_config_cls(), [APIServerConfig(api_key="x", health_check=False)]

    async def setup(self) -> None:
        """Read the group."""
        self._group = json.loads(Path(self.config.group_path).read_bytes())

    async def get_next_item(self) -> str:
        """Anything."""
        return "item"

    async def collect_trajectories(self, item: str) -> tuple[dict[str, Any], list[str]]:
        """The group; Atropos adds keys to what it is given."""
        return dict(self._group), []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    FloorEnv.cli()
