"""The blocking counterparts of brig/_async/_thread.py. Both files are written by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(f: Callable[[], T]) -> T:
    """Call a blocking function."""
    return f()


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


class BackgroundTask:
    """A thread that runs concurrently with its caller."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as e:  # wait raises it
            self._failure = e

    def wait(self) -> None:
        """Wait until the thread ends, and raise its exception."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        """Do nothing: a thread cannot be cancelled. It does not delay the exit of the process."""
