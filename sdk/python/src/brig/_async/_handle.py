"""A sandbox in the hands of its caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from .. import _nouns as n
from ._backend import Backend
from ._connection import Connection
from ._context import CodeContext
from ._files import Files
from ._process import Process
from ._stream import OutputStream

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SandboxHandle:
    """A sandbox that stays until somebody removes it, or nobody uses it for its ``ttl``.

    With ``async with`` it is removed at the end of the block.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend = backend
        #: Its name.
        self.name = name
        #: Its files.
        self.files = Files(backend, name)

    def __repr__(self) -> str:
        return f"SandboxHandle({self.name!r})"

    async def __aenter__(self) -> SandboxHandle:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.remove()

    async def exec(self, cmd: str, args: Sequence[str] | None = None, **options: Unpack[n.InputOptions]) -> n.ExecResult:
        """Run a program with arguments, which no shell looks at, until it ends.

        A program that fails, or is killed when its ``timeout`` is over, is no
        error: its result says so.
        """
        return await self._backend.exec(self.name, n.Command((cmd, *(args or ())), **options))

    async def shell(self, script: str, **options: Unpack[n.InputOptions]) -> n.ExecResult:
        """Run a script with the image's shell, until it ends. See :meth:`exec`."""
        return await self._backend.exec(self.name, n.Command(script=script, **options))

    def stream(self, cmd: str, args: Sequence[str] | None = None, **options: Unpack[n.InputOptions]) -> OutputStream:
        """Run a program and have its output as it happens."""
        return OutputStream(self._backend.stream(self.name, n.Command((cmd, *(args or ())), **options)))

    def stream_shell(self, script: str, **options: Unpack[n.InputOptions]) -> OutputStream:
        """Run a script and have its output as it happens."""
        return OutputStream(self._backend.stream(self.name, n.Command(script=script, **options)))

    async def start(
        self, cmd: str, args: Sequence[str] | None = None, *, tag: str = "", **options: Unpack[n.CommandOptions]
    ) -> Process:
        """Start a program that goes on by itself, a server for example."""
        command = n.Command((cmd, *(args or ())), **options)
        return Process(self._backend, self.name, await self._backend.start(self.name, command, tag))

    async def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> n.CodeResult:
        """Run code in the sandbox's own context of a language, which keeps its variables."""
        return await self._backend.run_code(self.name, code, language, "", timeout, env or {})

    async def create_context(
        self, language: str = "python", *, cwd: str = "", env: Mapping[str, str] | None = None
    ) -> CodeContext:
        """Start an interpreter that keeps its variables."""
        context = await self._backend.create_context(self.name, language, cwd, env or {})
        return CodeContext(self._backend, self.name, context, language)

    async def connect(self, port: int) -> Connection:
        """Connect to a TCP port on which something in the sandbox listens."""
        return await self._backend.connect(self.name, port)

    async def fork(
        self,
        count: int = 1,
        *,
        name: str = "",
        paused: bool = False,
        labels: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> list[SandboxHandle]:
        """Make copies of it, with its memory, programs and files, while it runs on.

        Labels and lease are its own unless they are given. There are all copies or none.
        One copy may have a name, and be paused: it then takes only disk space, and can be
        forked any number of times.
        """
        infos = await self._backend.fork(self.name, count, name, paused, labels, ttl)
        return [SandboxHandle(self._backend, info.name) for info in infos]

    async def stop(self, *, grace: float | None = None) -> None:
        """Ask its programs to end, and kill them after ``grace`` seconds. Its record and logs stay."""
        await self._backend.stop(self.name, grace)

    async def kill(self) -> None:
        """Kill its programs at once. Its record and logs stay."""
        await self._backend.kill(self.name)

    async def remove(self) -> None:
        """Kill it if it lives, and forget it."""
        await self._backend.remove(self.name)

    async def logs(self, *, tail: int | None = None) -> str:
        """What its programs wrote, or the last lines of it; also after its end."""
        return await self._backend.logs(self.name, tail)

    async def info(self) -> n.SandboxInfo:
        """What it is now."""
        return await self._backend.info(self.name)

    async def extend(self, ttl: float) -> n.SandboxInfo:
        """Have it live for so many seconds from now."""
        return await self._backend.extend(self.name, ttl)

    async def set_egress(self, rules: Sequence[str | n.EgressRule]) -> None:
        """Change where it may connect to. Connections that may not be any more are closed."""
        await self._backend.set_egress(self.name, rules)

    async def commit(self) -> n.WorkspaceCommit:
        """Make a version of its workspace of what is there now."""
        return await self._backend.commit_workspace(self.name)
