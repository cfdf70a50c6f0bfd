"""The client: the way to sandboxes, wherever they are."""

from __future__ import annotations

import builtins
import os
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

import httpx

from .. import _nouns as n
from .._engine import Engine
from .._errors import InvalidArgumentError
from ._backend import Backend
from ._e2b import E2B
from ._handle import SandboxHandle
from ._rest import Rest

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SandboxClient:
    """The way to sandboxes, on this machine or elsewhere::

        async with SandboxClient() as client:
            print((await client.run_python("print(6 * 7)")).stdout)

    ``where`` is ``"local"``, the URL of a Brig server, or ``"e2b"``; default what
    ``BRIG_URL`` says, and else ``"local"``: the server of this machine's data
    folder if one runs, and otherwise one that is started when it is first needed
    and ends with the client. For ``"e2b"`` the variables count that E2B's own
    clients know, and ``templates`` says which template stands for an image, as
    ``BRIG_TEMPLATES`` does: ``python:3.11-slim=base,node:20-slim=base``.

    A URL without a ``key`` and without ``BRIG_API_KEY`` is asked with the key of the
    data folder if it is the address of that folder's server, as commands do.

    A plain ``http://`` address of another machine is refused, since whoever is on
    the way reads the key. ``insecure_http`` or ``BRIG_INSECURE_HTTP`` admits it.

    A server at its capacity refuses a call before it begins, and says when to call again.
    The client does so for ``patience`` seconds in all; 0 raises
    :class:`RateLimitedError` at once.

    Cancelling a call ends what it has begun. Use the client with ``async with``,
    or :meth:`close` it.
    """

    def __init__(
        self,
        where: str | None = None,
        *,
        key: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        binary: str | None = None,
        templates: Mapping[str, str] | None = None,
        http: httpx.AsyncClient | None = None,
        insecure_http: bool = False,
        patience: float = 30.0,
    ) -> None:
        where = where or os.environ.get("BRIG_URL") or "local"
        self._backend: Backend
        if where == "local":
            self._backend = Rest(
                "", "", engine=Engine(binary, data_dir), http=http, insecure_http=insecure_http, patience=patience
            )
        elif where == "e2b":
            self._backend = E2B(key or "", templates or {}, http=http, insecure_http=insecure_http)
        elif where.startswith(("http://", "https://")):
            key = key or os.environ.get("BRIG_API_KEY", "")
            if not key:
                ours, key = Engine(binary, data_dir).announced(where)
                where = ours or where
            self._backend = Rest(where, key, engine=None, http=http, insecure_http=insecure_http, patience=patience)
        else:
            raise InvalidArgumentError(
                f"{where!r} is not a server", field="where", hint="give local, e2b, or a URL like http://127.0.0.1:2744"
            )

    async def __aenter__(self) -> SandboxClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """End connections, and the engine if this client has started it. Sandboxes stay."""
        await self._backend.close()

    async def create(self, spec: n.SandboxSpec) -> SandboxHandle:
        """Start a sandbox, and return when it is running."""
        return SandboxHandle(self._backend, (await self._backend.create(spec)).name)

    async def get(self, name: str) -> SandboxHandle:
        """Find a sandbox that there is."""
        return SandboxHandle(self._backend, (await self._backend.info(name)).name)

    async def list(self, *, labels: Mapping[str, str] | None = None, state: str = "") -> builtins.list[str]:
        """List the names of sandboxes, those included that have ended and were not removed."""
        return [s.name for s in await self._backend.sandboxes(labels or {}, state)]

    async def remove(self, name: str) -> None:
        """Kill a sandbox if it lives, and forget it."""
        await self._backend.remove(name)

    async def run_python(
        self,
        code: str,
        *,
        image: str | None = n.DEFAULT_IMAGE,
        timeout: float | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> n.RunResult:
        """Run Python in a sandbox of its own, which is gone afterwards, whatever happens."""
        return await self.run(code, image=image, timeout=timeout, **n.SIZE | options)

    async def run_shell(
        self,
        script: str,
        *,
        image: str | None = n.DEFAULT_IMAGE,
        timeout: float | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> n.RunResult:
        """Run a shell's script in a sandbox of its own, which is gone afterwards, whatever happens."""
        options = {"name": f"sh-{uuid.uuid4().hex[:8]}", **n.SIZE, **options}
        return await self.run_command("/bin/sh", ["-c", script], image=image, timeout=timeout, **options)

    async def run(
        self,
        code: str,
        *,
        language: str = "python",
        arguments: Mapping[str, Any] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        image: str | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> n.RunResult:
        """Run a program in a sandbox of its own.

        Its function ``main`` is called with ``arguments``, and what that returns is
        the result's ``value``. ``files`` are put below ``/workspace`` before; what
        the program leaves in ``artifacts/`` comes back. ``language`` is python,
        javascript, typescript or bash.
        """
        program = n.Program(_spec(image, options), code, language, (), arguments, files or {}, timeout, stdin)
        return await self._backend.run(program)

    async def run_command(
        self,
        cmd: str,
        args: Sequence[str] | None = None,
        *,
        files: Mapping[str, str | bytes] | None = None,
        image: str | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> n.RunResult:
        """Run a command in a sandbox of its own."""
        argv = (cmd, *(args or ()))
        program = n.Program(_spec(image, options), argv=argv, files=files or {}, timeout=timeout, stdin=stdin)
        return await self._backend.run(program)

    async def create_workspace(self, name: str) -> n.WorkspaceInfo:
        """Make an empty directory that outlives sandboxes."""
        return await self._backend.create_workspace(name)

    async def workspaces(self) -> builtins.list[n.WorkspaceInfo]:
        """List the directories that outlive sandboxes."""
        return await self._backend.workspaces()

    async def read_workspace_file(self, workspace: str, path: str, *, version: int = 0) -> bytes:
        """Return a file of a workspace's version, by the path that it had in its sandbox. 0 is the newest."""
        return await self._backend.read_workspace_file(workspace, path, version)

    async def remove_workspace(self, name: str) -> None:
        """Forget a workspace with all its versions."""
        await self._backend.remove_workspace(name)

    async def put_secret(self, name: str, value: str | bytes, *, hosts: Sequence[str] = ()) -> n.SecretInfo:
        """Keep a secret, or give the one of that name another value.

        With ``hosts`` no sandbox ever sees it: it is put into requests to these.
        """
        return await self._backend.put_secret(name, value, hosts)

    async def secrets(self) -> builtins.list[n.SecretInfo]:
        """List secrets, without their values."""
        return await self._backend.secrets()

    async def remove_secret(self, name: str) -> None:
        """Forget a secret."""
        await self._backend.remove_secret(name)

    async def pull_image(self, ref: str) -> None:
        """Fetch an image from a registry."""
        await self._backend.pull_image(ref)


def _spec(image: str | None, options: n.SpecOptions) -> n.SandboxSpec:
    fields: dict[str, Any] = {"name": "", "memory_mib": None, "cpus": None, **options}
    return n.SandboxSpec(image=image, **fields)
