"""Streams of output."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import cast

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


class RunStream(OutputStream):
    """A one-shot run and its output. See :class:`OutputStream`."""

    @property
    def result(self) -> n.RunResult:
        """The result of the run, after all output has been read."""
        return cast(n.RunResult, super().result)

    async def __aenter__(self) -> RunStream:
        return self


class CodeStream:
    """Running code with its output and the values that it displays::

        async with sandbox.stream_code("print(1); 2") as output:
            async for item in output:
                print(item.text if isinstance(item, Chunk) else item.data)
        print(output.result.text)

    Leaving the block early interrupts the code.
    """

    def __init__(self, events: AsyncGenerator[n.Chunk | n.Rich | n.CodeResult, None]) -> None:
        self._events = events
        self._result: n.CodeResult | None = None

    @property
    def result(self) -> n.CodeResult:
        """The result of the code, after all output has been read."""
        if self._result is None:
            raise FailedPreconditionError("the code has not ended", hint="read the stream to its end first")
        return self._result

    async def __aiter__(self) -> AsyncIterator[n.Chunk | n.Rich]:
        async for event in self._events:
            if isinstance(event, n.CodeResult):
                self._result = event
            else:
                yield event

    async def __aenter__(self) -> CodeStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._events.aclose()


class FileWatch:
    """The changes in a directory::

        async with sandbox.files.watch("/workspace") as changes:
            async for change in changes:
                print(change.name, change.kinds)

    The block begins when the watch has begun. It is a use of the sandbox.
    """

    def __init__(self, events: AsyncGenerator[n.FileChange | None, None]) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[n.FileChange]:
        async for event in self._events:
            if event is not None:
                yield event

    async def __aenter__(self) -> FileWatch:
        await anext(self._events)  # the watch has begun
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._events.aclose()
