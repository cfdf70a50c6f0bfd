# Made of brig/_async/_process.py by tools/unasync.py; change it there.
"""Programs that go on by themselves."""

from __future__ import annotations

from .. import _nouns as n
from ._backend import Backend
from ._stream import OutputStream


class Process:
    """A program in a sandbox that nobody has to wait for."""

    def __init__(self, backend: Backend, sandbox: str, pid: int) -> None:
        self._backend, self._sandbox = backend, sandbox
        #: Its id inside the sandbox.
        self.pid = pid

    def __repr__(self) -> str:
        return f"Process({self.pid})"

    def output(self) -> OutputStream:
        """Have its output from the beginning. Leaving it early leaves the program as it is."""
        return OutputStream(self._backend.attach(self._sandbox, self.pid))

    def wait(self) -> n.ExecResult:
        """Wait for its end."""
        with self.output() as output:
            for _ in output:
                pass
        return output.result

    def write(self, data: str | bytes) -> None:
        """Write to its standard input."""
        content = data.encode() if isinstance(data, str) else data
        self._backend.write_input(self._sandbox, self.pid, content)

    def close_input(self) -> None:
        """End its standard input."""
        self._backend.close_input(self._sandbox, self.pid)

    def send_signal(self, signal: str) -> None:
        """Send a signal, for example ``SIGTERM``. ``SIGKILL`` ends all that it started."""
        self._backend.signal(self._sandbox, self.pid, signal)

    def kill(self) -> None:
        """Kill it, and all that it started."""
        self.send_signal("SIGKILL")
