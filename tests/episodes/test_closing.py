"""What a run has opened is closed, whatever fails."""

from __future__ import annotations

import asyncio

import pytest

from foretrace.api.event_loop import closing_all, run_in_event_loop


class Part:
    """A model or a sandbox that may fail to close."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.closed = error, False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.closed = True
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("failed", [None, LookupError("the run")])
def test_the_sandbox_is_closed_also_where_the_model_fails(failed: Exception | None) -> None:
    model, sandbox = Part(OSError("the model")), Part(OSError("the sandbox"))

    async def work() -> None:
        async with closing_all(model, sandbox):  # type: ignore[arg-type]
            if failed is not None:
                raise failed

    with pytest.raises((OSError, LookupError), match="the run" if failed else "the model"):
        run_in_event_loop(work)
    assert model.closed and sandbox.closed
