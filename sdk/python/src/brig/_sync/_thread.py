"""How what blocks is waited for: by blocking. Written by hand, as its namesake is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(f: Callable[[], T]) -> T:
    """Call a function that blocks."""
    return f()


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


class Beside:
    """Work that goes on beside its caller's."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as e:  # whoever asks for the end is told
            self._failure = e

    def end(self) -> None:
        """Wait for the end, and raise what went wrong."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        """Let it go: nobody waits for it any more."""
