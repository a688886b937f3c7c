"""No types: pyright reads the same of this optional library whether it is installed or not."""

from typing import Any

def __getattr__(name: str) -> Any: ...
