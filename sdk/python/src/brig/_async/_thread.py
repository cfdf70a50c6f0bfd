"""How what blocks is waited for, without anything else having to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


async def in_thread(f: Callable[[], T]) -> T:
    """Call a function that blocks."""
    return await asyncio.to_thread(f)


async def pause(seconds: float) -> None:
    """Wait, and let other tasks run."""
    await asyncio.sleep(seconds)


class Beside:
    """Work that goes on beside its caller's."""

    def __init__(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._task = asyncio.ensure_future(work())
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())  # it need not be asked for

    async def end(self) -> None:
        """Wait for the end, and raise what went wrong."""
        await self._task

    def leave(self) -> None:
        """Let it go: nobody waits for it any more."""
        self._task.cancel()
