# Generated from brig/_async/_client.py by tools/unasync.py. Edit that file.
"""The client."""

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
from ._stream import RunStream
from ._volume import VolumeFiles

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SandboxClient:
    """A client for sandboxes on this machine or a server::

        with SandboxClient() as client:
            print((client.run_python("print(6 * 7)")).stdout)

    ``where`` is ``"local"``, the URL of a Brig server, or ``"e2b"``. The default is
    ``BRIG_URL``, or else ``"local"``: the server of this machine's data folder. If
    none runs, the client starts one when it first needs it, and stops it at the end.
    ``"e2b"`` uses the environment variables of E2B's clients, and ``templates`` maps
    images to templates, as ``BRIG_TEMPLATES`` does:
    ``python:3.11-slim=base,node:20-slim=base``.

    The client uses the socket in the data folder of a server, and sends no key. It does so
    for a URL, too, without ``key`` and ``BRIG_API_KEY``, if the folder's server has
    announced this address. ``http`` is for other URLs.

    The client rejects an ``http://`` URL of another machine, because others on the
    network could read the key. ``insecure_http`` or ``BRIG_INSECURE_HTTP`` permits it.

    A server at its capacity rejects a call before it starts, and returns the time
    after which to retry. The client retries for up to ``patience`` seconds; with 0 it
    raises :class:`RateLimitedError` immediately.

    Cancelling a call ends the program that it has started. Use the client with
    ``with``, or :meth:`close` it.
    """

    def __init__(
        self,
        where: str | None = None,
        *,
        key: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        binary: str | None = None,
        templates: Mapping[str, str] | None = None,
        http: httpx.Client | None = None,
        insecure_http: bool = False,
        patience: float = 30.0,
    ) -> None:
        where = where or os.environ.get("BRIG_URL") or "local"
        self._backend: Backend
        if where == "local":
            engine = Engine(binary, data_dir)
            self._backend = Rest(
                "", "", engine=engine, folder=engine.folder, http=http, insecure_http=insecure_http, patience=patience
            )
        elif where == "e2b":
            self._backend = E2B(key or "", templates or {}, http=http, insecure_http=insecure_http)
        elif where.startswith(("http://", "https://")):
            key = key or os.environ.get("BRIG_API_KEY", "")
            engine = Engine(binary, data_dir)
            folder = engine.folder if not key and engine.announced(where) else None
            self._backend = Rest(
                where, key, engine=None, folder=folder, http=http, insecure_http=insecure_http, patience=patience
            )
        else:
            raise InvalidArgumentError(
                f"{where!r} is not a server", field="where", hint="give local, e2b, or a URL like http://127.0.0.1:2744"
            )

    def __enter__(self) -> SandboxClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and stop the server if this client has started it. Sandboxes stay."""
        self._backend.close()

    def create(self, spec: n.SandboxSpec) -> SandboxHandle:
        """Start a sandbox, and return when it is running."""
        return SandboxHandle(self._backend, (self._backend.create(spec)).name)

    def get(self, name: str) -> SandboxHandle:
        """Return the sandbox with a name."""
        return SandboxHandle(self._backend, (self._backend.info(name)).name)

    def list(self, *, labels: Mapping[str, str] | None = None, state: str = "") -> builtins.list[str]:
        """List the names of sandboxes, including those that have ended and were not removed."""
        return [s.name for s in self._backend.sandboxes(labels or {}, state)]

    def remove(self, name: str) -> None:
        """Kill a sandbox if it runs, and remove its record."""
        self._backend.remove(name)

    def run_python(
        self,
        code: str,
        *,
        image: str | None = n.DEFAULT_IMAGE,
        timeout: float | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> n.RunResult:
        """Run Python code in a new sandbox, which is removed afterwards in any case."""
        return self.run(code, image=image, timeout=timeout, **n.SIZE | options)

    def run_shell(
        self,
        script: str,
        *,
        image: str | None = n.DEFAULT_IMAGE,
        timeout: float | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> n.RunResult:
        """Run a shell script in a new sandbox, which is removed afterwards in any case."""
        options = {"name": f"sh-{uuid.uuid4().hex[:8]}", **n.SIZE, **options}
        return self.run_command("/bin/sh", ["-c", script], image=image, timeout=timeout, **options)

    def run(
        self,
        code: str,
        *,
        language: str = "python",
        arguments: Mapping[str, Any] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        image: str | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        grace: float | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> n.RunResult:
        """Run a program in a new sandbox.

        The program's function ``main`` is called with ``arguments``, and its return
        value is the result's ``value``. ``files`` are written below ``/workspace``
        before the start. Files that the program writes to ``artifacts/`` are in the
        result. ``language`` is python, javascript, typescript or bash. At its timeout, the
        program gets SIGTERM ``grace`` seconds before it is killed.
        """
        program = n.Program(_spec(image, options), code, language, (), arguments, files or {}, timeout, stdin, grace)
        return self._backend.run(program)

    def stream(
        self,
        code: str,
        *,
        language: str = "python",
        arguments: Mapping[str, Any] | None = None,
        files: Mapping[str, str | bytes] | None = None,
        image: str | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        grace: float | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> RunStream:
        """Run a program in a new sandbox like :meth:`run`, and stream its output."""
        program = n.Program(_spec(image, options), code, language, (), arguments, files or {}, timeout, stdin, grace)
        return RunStream(self._backend.stream_run(program))

    def run_command(
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
        """Run a command in a new sandbox."""
        argv = (cmd, *(args or ()))
        program = n.Program(_spec(image, options), argv=argv, files=files or {}, timeout=timeout, stdin=stdin)
        return self._backend.run(program)

    def stream_command(
        self,
        cmd: str,
        args: Sequence[str] | None = None,
        *,
        files: Mapping[str, str | bytes] | None = None,
        image: str | None = None,
        timeout: float | None = None,
        stdin: str | bytes | None = None,
        **options: Unpack[n.SpecOptions],
    ) -> RunStream:
        """Run a command in a new sandbox, and stream its output."""
        argv = (cmd, *(args or ()))
        program = n.Program(_spec(image, options), argv=argv, files=files or {}, timeout=timeout, stdin=stdin)
        return RunStream(self._backend.stream_run(program))

    def runs(self, *, status: n.RunStatus | None = None) -> builtins.list[n.RunSummary]:
        """List the one-shot runs whose results the server keeps, the last one to end first."""
        return self._backend.runs(status or "")

    def get_run(self, name: str) -> n.RunResult:
        """Return the result of a one-shot run by the name of its sandbox, for a limited time after its end."""
        return self._backend.run_result(name)

    def create_workspace(self, name: str) -> n.WorkspaceInfo:
        """Create an empty workspace, a directory that outlives sandboxes."""
        return self._backend.create_workspace(name)

    def workspaces(self) -> builtins.list[n.WorkspaceInfo]:
        """List the workspaces."""
        return self._backend.workspaces()

    def read_workspace_file(self, workspace: str, path: str, *, version: int = 0) -> bytes:
        """Return a file of a workspace by its path in the sandbox. ``version`` 0 is the newest version."""
        return self._backend.read_workspace_file(workspace, path, version)

    def workspace_versions(self, workspace: str) -> builtins.list[n.WorkspaceVersion]:
        """List the versions of a workspace with their sizes and creators."""
        return self._backend.workspace_versions(workspace)

    def workspace_files(self, workspace: str, path: str = "", *, version: int = 0) -> builtins.list[n.WorkspaceFile]:
        """List the files of a version, or those at and below a path. ``version`` 0 is the newest version."""
        return self._backend.workspace_files(workspace, path, version)

    def diff_workspace(self, workspace: str, old: int, new: int) -> builtins.list[n.WorkspaceChange]:
        """List the paths that differ between two versions. Version 0 is the empty workspace."""
        return self._backend.diff_workspace(workspace, old, new)

    def restore_workspace(self, workspace: str, version: int) -> n.WorkspaceVersion:
        """Create a new version with the content of an old one. No version is lost."""
        return self._backend.restore_workspace(workspace, version)

    def remove_workspace(self, name: str) -> None:
        """Remove a workspace with all its versions."""
        self._backend.remove_workspace(name)

    def create_volume(self, name: str, *, size_mib: int | None = None) -> n.VolumeInfo:
        """Create an empty volume, a directory that several sandboxes mount at the same time.

        Its size is fixed. Without ``size_mib``, it is the server's default.
        """
        return self._backend.create_volume(name, size_mib)

    def volumes(self) -> builtins.list[n.VolumeInfo]:
        """List the volumes, the oldest first."""
        return self._backend.volumes()

    def get_volume(self, name: str) -> n.VolumeInfo:
        """Return a volume by its name or ID."""
        return self._backend.get_volume(name)

    def volume_files(self, name: str) -> VolumeFiles:
        """Return the files of a volume, without a call to the server."""
        return VolumeFiles(self._backend, name)

    def remove_volume(self, name: str) -> None:
        """Remove a volume with its files. Sandboxes that have mounted it keep it until they end."""
        self._backend.remove_volume(name)

    def put_secret(self, name: str, value: str | bytes, *, hosts: Sequence[str] = ()) -> n.SecretInfo:
        """Create a secret, or update its value.

        With ``hosts``, no sandbox sees the value: the proxy inserts it into requests to
        these hosts.
        """
        return self._backend.put_secret(name, value, hosts)

    def secrets(self) -> builtins.list[n.SecretInfo]:
        """List secrets, without their values."""
        return self._backend.secrets()

    def remove_secret(self, name: str) -> None:
        """Remove a secret."""
        self._backend.remove_secret(name)

    def pull_image(
        self, ref: str, *, username: str = "", password: str = "", platform: str = "", insecure: bool = False
    ) -> n.ImageInfo:
        """Pull an image from a registry. The server does not store the password.

        ``platform`` is for example ``linux/arm64``. ``insecure`` allows plain HTTP.
        """
        return self._backend.pull_image(ref, username, password, platform, insecure)

    def images(self) -> builtins.list[n.ImageInfo]:
        """List the images from which sandboxes can be created."""
        return self._backend.images()

    def templates(self) -> builtins.list[n.TemplateInfo]:
        """List the templates from which sandboxes can be created."""
        return self._backend.templates()


def _spec(image: str | None, options: n.SpecOptions) -> n.SandboxSpec:
    fields: dict[str, Any] = {"name": "", "memory_mib": None, "cpus": None, **options}
    return n.SandboxSpec(image=image, **fields)
