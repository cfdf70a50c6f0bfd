"""Streams of output."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType

from .. import _nouns as n
from .._errors import FailedPreconditionError


class OutputStream:
    """A running command and its output::

        async with sandbox.stream("make") as output:
            async for chunk in output:
                print(chunk.text, end="")
        print(output.result.exit_code)

    Leaving the block early ends the command.
    """

    def __init__(self, events: AsyncGenerator[n.Chunk | n.ExecResult, None]) -> None:
        self._events = events
        self._result: n.ExecResult | None = None

    @property
    def result(self) -> n.ExecResult:
        """The result of the command, after all output has been read."""
        if self._result is None:
            raise FailedPreconditionError("the command has not ended", hint="read the stream to its end first")
        return self._result

    async def __aiter__(self) -> AsyncIterator[n.Chunk]:
        async for event in self._events:
            if isinstance(event, n.Chunk):
                yield event
            else:
                self._result = event

    async def __aenter__(self) -> OutputStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._events.aclose()
