"""A handle of a persistent sandbox."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from .. import _nouns as n
from ._backend import Backend
from ._connection import Connection
from ._context import CodeContext
from ._files import Files
from ._process import Process
from ._stream import CodeStream, OutputStream

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SandboxHandle:
    """A persistent sandbox. It lives until it is removed, or unused for ``ttl`` seconds.

    ``async with`` removes it at the end of the block.
    """

    def __init__(self, backend: Backend, name: str) -> None:
        self._backend = backend
        #: The name of the sandbox.
        self.name = name
        #: The files of the sandbox.
        self.files = Files(backend, name)

    def __repr__(self) -> str:
        return f"SandboxHandle({self.name!r})"

    async def __aenter__(self) -> SandboxHandle:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.remove()

    async def exec(self, cmd: str, args: Sequence[str] | None = None, **options: Unpack[n.InputOptions]) -> n.ExecResult:
        """Run a program with arguments, without a shell, and wait until it ends.

        A program that fails or times out raises no exception: the result has its exit
        code and ``timed_out``.
        """
        return await self._backend.exec(self.name, n.Command((cmd, *(args or ())), **options))

    async def shell(self, script: str, **options: Unpack[n.InputOptions]) -> n.ExecResult:
        """Run a script in the image's shell, and wait until it ends. See :meth:`exec`."""
        return await self._backend.exec(self.name, n.Command(script=script, **options))

    def stream(self, cmd: str, args: Sequence[str] | None = None, **options: Unpack[n.InputOptions]) -> OutputStream:
        """Run a program and stream its output."""
        return OutputStream(self._backend.stream(self.name, n.Command((cmd, *(args or ())), **options)))

    def stream_shell(self, script: str, **options: Unpack[n.InputOptions]) -> OutputStream:
        """Run a shell script and stream its output."""
        return OutputStream(self._backend.stream(self.name, n.Command(script=script, **options)))

    async def execs(self) -> list[n.Execution]:
        """List the commands with their results, including running ones."""
        return await self._backend.executions(self.name)

    async def get_exec(self, id: str) -> n.Execution:
        """Return a command by the ID in its result, with its result so far."""
        return await self._backend.execution(self.name, id)

    async def start(self, cmd: str, args: Sequence[str] | None = None, **options: Unpack[n.ProcessOptions]) -> Process:
        """Start a program in the background, for example a server."""
        return self.process(await self._backend.start(self.name, n.Command((cmd, *(args or ())), **options)))

    async def start_shell(self, script: str, **options: Unpack[n.ProcessOptions]) -> Process:
        """Start a shell script in the background."""
        return self.process(await self._backend.start(self.name, n.Command(script=script, **options)))

    async def processes(self) -> list[n.ProcessInfo]:
        """List the processes in the background, including some that have ended."""
        return await self._backend.processes(self.name)

    def process(self, pid: int) -> Process:
        """Return the process with an ID, without a call to the server."""
        return Process(self._backend, self.name, pid)

    async def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> n.CodeResult:
        """Run code in the sandbox's default context of a language, which keeps its variables."""
        return await self._backend.run_code(self.name, code, language, "", timeout, env or {})

    def stream_code(
        self,
        code: str,
        *,
        language: str = "python",
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> CodeStream:
        """Run code like :meth:`run_code`, and stream its output and the values that it displays."""
        return CodeStream(self._backend.stream_code(self.name, code, language, "", timeout, env or {}))

    async def contexts(self) -> list[n.ContextInfo]:
        """List the contexts, including the default ones."""
        return await self._backend.contexts(self.name)

    def context(self, id: str) -> CodeContext:
        """Return the context with an ID, without a call to the server."""
        return CodeContext(self._backend, self.name, id)

    async def create_context(
        self, language: str = "python", *, cwd: str = "", env: Mapping[str, str] | None = None
    ) -> CodeContext:
        """Create a context: an interpreter that keeps its variables."""
        context = await self._backend.create_context(self.name, language, cwd, env or {})
        return CodeContext(self._backend, self.name, context, language)

    async def connect(self, port: int) -> Connection:
        """Connect to a TCP port on which a program in the sandbox listens."""
        return await self._backend.connect(self.name, port)

    async def fork(self, count: int = 1, **options: Unpack[n.ForkOptions]) -> list[SandboxHandle]:
        """Create copies of the sandbox, with its memory, programs and files. The sandbox runs on.

        The copies have its environment, egress rules, user, directory, labels and lease unless
        you set others. If one copy fails, none is created. A single copy can have a name and be
        paused: it then uses only disk space, and can be forked any number of times.
        """
        infos = await self._backend.fork(self.name, n.Fork(count, **options))
        return [SandboxHandle(self._backend, info.name) for info in infos]

    async def pause(self, *, files_only: bool = False) -> n.SandboxInfo:
        """Save its memory and files on disk until its next use, which resumes it.

        With ``files_only`` no program prevents that: contexts and processes end, and the
        resume boots it again with its files, without those in ``/tmp`` and ``/dev/shm``.
        """
        return await self._backend.pause(self.name, files_only)

    async def resume(self) -> n.SandboxInfo:
        """Continue it ahead of its next use."""
        return await self._backend.resume(self.name)

    async def stop(self, *, grace: float | None = None) -> None:
        """Terminate the programs, and kill them after ``grace`` seconds. The record and logs stay."""
        await self._backend.stop(self.name, grace)

    async def kill(self) -> None:
        """Kill the programs immediately. The record and logs stay."""
        await self._backend.kill(self.name)

    async def remove(self) -> None:
        """Kill the sandbox if it runs, and remove its record."""
        await self._backend.remove(self.name)

    async def logs(self, *, tail: int | None = None, times: bool = False) -> str:
        """Return the output of the programs, or its last ``tail`` lines, also after the sandbox has ended.

        With ``times``, each line begins with its time.
        """
        return await self._backend.logs(self.name, tail, times)

    def follow_logs(self, *, tail: int | None = None, times: bool = False) -> AsyncGenerator[str, None]:
        """Yield what its programs wrote, or the last lines of it, and then what they write until it ends.

        Reading it is a use of the sandbox. Close the generator to end it earlier.
        """
        return self._backend.follow_logs(self.name, tail, times)

    async def info(self) -> n.SandboxInfo:
        """Return the current state of the sandbox."""
        return await self._backend.info(self.name)

    async def extend(self, ttl: float) -> n.SandboxInfo:
        """Renew the lease, so that the sandbox lives for ``ttl`` seconds from now."""
        return await self._backend.extend(self.name, ttl)

    async def set_egress(self, rules: Sequence[str | n.EgressRule], *, bandwidth: int | None = None) -> None:
        """Replace the egress rules. Open connections that the new rules deny are closed.

        ``bandwidth`` is bytes per second in each direction; 0 is unlimited, and None leaves
        it unchanged.
        """
        await self._backend.set_egress(self.name, rules, bandwidth)

    async def usage(self) -> n.SandboxUsage:
        """Measure the processor time, memory, disk and network. That is no use of the sandbox."""
        return await self._backend.usage(self.name)

    async def attest(self) -> n.SandboxInfo:
        """Verify in the sandbox and on its host that its limits hold. The result is in ``enforcement``."""
        return await self._backend.attest(self.name)

    async def commit(self) -> n.WorkspaceCommit:
        """Save the current files as a new version of the workspace."""
        return await self._backend.commit_workspace(self.name)
