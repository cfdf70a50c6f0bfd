"""Interpreters that keep their variables."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from .. import _nouns as n
from ._backend import Backend
from ._stream import CodeStream


class CodeContext:
    """An interpreter in a sandbox that keeps its variables between cells, like a notebook."""

    def __init__(self, backend: Backend, sandbox: str, id: str, language: str = "") -> None:
        self._backend, self._sandbox = backend, sandbox
        self.id, self.language = id, language

    def __repr__(self) -> str:
        return f"CodeContext({self.id!r}, {self.language!r})"

    async def run(self, code: str, *, timeout: float | None = None, env: Mapping[str, str] | None = None) -> n.CodeResult:
        """Run code and return its result. Calls in one context run one after the other."""
        return await self._backend.run_code(self._sandbox, code, "", self.id, timeout, env or {})

    def stream(self, code: str, *, timeout: float | None = None, env: Mapping[str, str] | None = None) -> CodeStream:
        """Run code, and stream its output and the values that it displays."""
        return CodeStream(self._backend.stream_code(self._sandbox, code, "", self.id, timeout, env or {}))

    async def interrupt(self) -> None:
        """Interrupt the running code, like Ctrl-C."""
        await self._backend.interrupt_context(self._sandbox, self.id)

    async def restart(self) -> None:
        """Restart the interpreter. Its variables are lost."""
        await self._backend.restart_context(self._sandbox, self.id)

    async def remove(self) -> None:
        """End the interpreter and remove the context."""
        await self._backend.remove_context(self._sandbox, self.id)

    async def __aenter__(self) -> CodeContext:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.remove()
