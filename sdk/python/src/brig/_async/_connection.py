"""A connection to a port of a sandbox."""

from __future__ import annotations

from types import TracebackType

import httpx

from .._errors import SandboxUnavailable


class Connection:
    """A connection to a TCP port on which a program in a sandbox listens.

    Use it with ``async with``, which closes it at the end of the block.
    """

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer
        self._stream = answer.extensions["network_stream"]

    async def read(self, most: int = 65536, *, timeout: float | None = None) -> bytes:
        """Read up to ``most`` bytes; an empty result means the end. ``timeout`` is in seconds."""
        try:
            data: bytes = await self._stream.read(most, timeout)
        except Exception as e:
            raise SandboxUnavailable(f"the connection to the port is lost: {e}") from e
        return data

    async def write(self, data: bytes, *, timeout: float | None = None) -> None:
        """Send bytes."""
        try:
            await self._stream.write(data, timeout)
        except Exception as e:
            raise SandboxUnavailable(f"the connection to the port is lost: {e}") from e

    async def close(self) -> None:
        """Close the connection."""
        await self._stream.aclose()
        await self._answer.aclose()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()
