"""How what blocks is waited for, without anything else having to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(f: Callable[[], T]) -> T:
    """Call a function that blocks."""
    return await asyncio.to_thread(f)
