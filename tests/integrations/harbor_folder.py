"""An environment for Harbor's own runner that needs no container engine: a folder that commands see as `/`.

Loaded by Harbor's Python, which has neither foretrace nor pytest.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult  # type: ignore[import-not-found]

_SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "proc", "usr")
_ENTER = f"""
for name in {" ".join(_SYSTEM)}; do [ -d /$name ] && mkdir -p $1/$name && mount --rbind /$name $1/$name; done
exec chroot $1 /bin/bash -c "cd /app; $2"
"""


class FolderEnvironment(BaseEnvironment):
    """Bash and Python of this machine, in a root folder of its own."""

    @staticmethod
    def type() -> str:
        return "folder"

    def _validate_definition(self) -> None:
        if not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(self.environment_dir / "Dockerfile")

    async def start(self, force_build: bool) -> None:
        self._root = Path(tempfile.mkdtemp())
        for name in ("app", "root", "tmp", "logs/agent", "logs/verifier", "logs/artifacts"):
            (self._root / name).mkdir(parents=True)

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self._root)

    def _at(self, path: str) -> Path:
        return self._root / str(path).lstrip("/")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._at(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._at(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._at(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        shutil.copy(self._at(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._at(source_dir), target_dir, dirs_exist_ok=True)

    async def exec(self, command: str, *_: Any, env: dict[str, str] | None = None, **__: Any) -> ExecResult:
        arguments = ("unshare", "-Urm", "bash", "-c", _ENTER, "-", self._root, command)
        pipes: Any = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE, "stdin": -3}
        process = await asyncio.create_subprocess_exec(*map(str, arguments), env=env, **pipes)
        out, error = await process.communicate()
        return ExecResult(stdout=out.decode(), stderr=error.decode(), return_code=process.returncode or 0)
