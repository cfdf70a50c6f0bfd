# Generated from brig/_async/_stream.py by tools/unasync.py. Edit that file.
"""Streams of output."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from types import TracebackType
from typing import cast

from .. import _nouns as n
from .._errors import FailedPreconditionError


class OutputStream:
    """A running command and its output::

        with sandbox.stream("make") as output:
            for chunk in output:
                print(chunk.text, end="")
        print(output.result.exit_code)

    Leaving the block early ends the command.
    """

    def __init__(self, events: Generator[n.Chunk | n.ExecResult, None, None]) -> None:
        self._events = events
        self._result: n.ExecResult | None = None

    @property
    def result(self) -> n.ExecResult:
        """The result of the command, after all output has been read."""
        if self._result is None:
            raise FailedPreconditionError("the command has not ended", hint="read the stream to its end first")
        return self._result

    def __iter__(self) -> Iterator[n.Chunk]:
        for event in self._events:
            if isinstance(event, n.Chunk):
                yield event
            else:
                self._result = event

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._events.close()


class RunStream(OutputStream):
    """A one-shot run and its output. See :class:`OutputStream`."""

    @property
    def result(self) -> n.RunResult:
        """The result of the run, after all output has been read."""
        return cast(n.RunResult, super().result)

    def __enter__(self) -> RunStream:
        return self


class CodeStream:
    """Running code with its output and the values that it displays::

        with sandbox.stream_code("print(1); 2") as output:
            for item in output:
                print(item.text if isinstance(item, Chunk) else item.data)
        print(output.result.text)

    Leaving the block early interrupts the code.
    """

    def __init__(self, events: Generator[n.Chunk | n.Rich | n.CodeResult, None, None]) -> None:
        self._events = events
        self._result: n.CodeResult | None = None

    @property
    def result(self) -> n.CodeResult:
        """The result of the code, after all output has been read."""
        if self._result is None:
            raise FailedPreconditionError("the code has not ended", hint="read the stream to its end first")
        return self._result

    def __iter__(self) -> Iterator[n.Chunk | n.Rich]:
        for event in self._events:
            if isinstance(event, n.CodeResult):
                self._result = event
            else:
                yield event

    def __enter__(self) -> CodeStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._events.close()


class FileWatch:
    """The changes in a directory::

        with sandbox.files.watch("/workspace") as changes:
            for change in changes:
                print(change.name, change.kinds)

    The block begins when the watch has begun. It is a use of the sandbox.
    """

    def __init__(self, events: Generator[n.FileChange | None, None, None]) -> None:
        self._events = events

    def __iter__(self) -> Iterator[n.FileChange]:
        for event in self._events:
            if event is not None:
                yield event

    def __enter__(self) -> FileWatch:
        next(self._events)  # the watch has begun
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._events.close()
