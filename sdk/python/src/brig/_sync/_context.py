# Made of brig/_async/_context.py by tools/unasync.py; change it there.
"""Interpreters that keep their variables."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from .. import _nouns as n
from ._backend import Backend


class CodeContext:
    """An interpreter in a sandbox that keeps its variables, as a notebook does."""

    def __init__(self, backend: Backend, sandbox: str, id: str, language: str) -> None:
        self._backend, self._sandbox = backend, sandbox
        self.id, self.language = id, language

    def __repr__(self) -> str:
        return f"CodeContext({self.id!r}, {self.language!r})"

    def run(self, code: str, *, timeout: float | None = None, env: Mapping[str, str] | None = None) -> n.CodeResult:
        """Run code and return what it came to. Runs in one context wait for each other."""
        return self._backend.run_code(self._sandbox, code, "", self.id, timeout, env or {})

    def interrupt(self) -> None:
        """Interrupt what runs, as Ctrl-C does."""
        self._backend.interrupt_context(self._sandbox, self.id)

    def restart(self) -> None:
        """Start the interpreter again, without its variables."""
        self._backend.restart_context(self._sandbox, self.id)

    def remove(self) -> None:
        """End the interpreter for good."""
        self._backend.remove_context(self._sandbox, self.id)

    def __enter__(self) -> CodeContext:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()
