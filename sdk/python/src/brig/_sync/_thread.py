"""How what blocks is waited for: by blocking. Written by hand, as its namesake is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def in_thread(f: Callable[[], T]) -> T:
    """Call a function that blocks."""
    return f()
