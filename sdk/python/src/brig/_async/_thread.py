"""Helpers that wait for blocking calls without blocking the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")


async def in_thread(f: Callable[[], T]) -> T:
    """Call a blocking function in a thread."""
    return await asyncio.to_thread(f)


async def pause(seconds: float) -> None:
    """Wait, and let other tasks run."""
    await asyncio.sleep(seconds)


class BackgroundTask:
    """A task that runs concurrently with its caller."""

    def __init__(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._task = asyncio.ensure_future(work())
        # Retrieve the exception, so that asyncio does not log it if nothing awaits the task.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def wait(self) -> None:
        """Wait until the task ends, and raise its exception."""
        await self._task

    def cancel(self) -> None:
        """Cancel the task without waiting for it."""
        self._task.cancel()
