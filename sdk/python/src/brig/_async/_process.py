"""Background processes."""

from __future__ import annotations

from .. import _nouns as n
from ._backend import Backend
from ._stream import OutputStream


class Process:
    """A program that runs in the background of a sandbox."""

    def __init__(self, backend: Backend, sandbox: str, pid: int) -> None:
        self._backend, self._sandbox = backend, sandbox
        #: The process ID in the sandbox.
        self.pid = pid

    def __repr__(self) -> str:
        return f"Process({self.pid})"

    def output(self, *, offset: int = 0) -> OutputStream:
        """Stream the output from the beginning, or without its first ``offset`` bytes; -1 skips the present output.

        Closing the stream does not end the program.
        """
        return OutputStream(self._backend.attach(self._sandbox, self.pid, offset))

    async def wait(self) -> n.ExecResult:
        """Wait until the program ends, and return its result."""
        async with self.output() as output:
            async for _ in output:
                pass
        return output.result

    async def write(self, data: str | bytes) -> None:
        """Write to the standard input of the program."""
        content = data.encode() if isinstance(data, str) else data
        await self._backend.write_input(self._sandbox, self.pid, content)

    async def close_input(self) -> None:
        """Close the standard input of the program."""
        await self._backend.close_input(self._sandbox, self.pid)

    async def resize(self, columns: int, rows: int) -> None:
        """Change the size of the program's terminal."""
        await self._backend.resize(self._sandbox, self.pid, n.Terminal(columns, rows))

    async def send_signal(self, signal: str) -> None:
        """Send a signal, for example ``SIGTERM``. ``SIGKILL`` also kills the program's descendants."""
        await self._backend.signal(self._sandbox, self.pid, signal)

    async def kill(self) -> None:
        """Kill the program and its descendants."""
        await self.send_signal("SIGKILL")
