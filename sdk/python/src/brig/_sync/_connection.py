# Generated from brig/_async/_connection.py by tools/unasync.py. Edit that file.
"""A connection to a port of a sandbox."""

from __future__ import annotations

from types import TracebackType

import httpx

from .._errors import SandboxUnavailable


class Connection:
    """A connection to a TCP port on which a program in a sandbox listens.

    Use it with ``with``, which closes it at the end of the block.
    """

    def __init__(self, answer: httpx.Response) -> None:
        self._answer = answer
        self._stream = answer.extensions["network_stream"]

    def read(self, most: int = 65536, *, timeout: float | None = None) -> bytes:
        """Read up to ``most`` bytes; an empty result means the end. ``timeout`` is in seconds."""
        try:
            data: bytes = self._stream.read(most, timeout)
        except Exception as e:
            raise SandboxUnavailable(f"the connection to the port is lost: {e}") from e
        return data

    def write(self, data: bytes, *, timeout: float | None = None) -> None:
        """Send bytes."""
        try:
            self._stream.write(data, timeout)
        except Exception as e:
            raise SandboxUnavailable(f"the connection to the port is lost: {e}") from e

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._answer.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
