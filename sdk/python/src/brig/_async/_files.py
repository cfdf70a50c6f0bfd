"""The files of a sandbox."""

from __future__ import annotations

from .. import _nouns as n
from ._backend import Backend


class Files:
    """The files of a running sandbox.

    A relative path begins where its commands do: ``default_cwd``, else ``/workspace``.
    """

    def __init__(self, backend: Backend, sandbox: str) -> None:
        self._backend, self._sandbox = backend, sandbox

    async def read(self, path: str, *, user: str = "") -> bytes:
        """Return what is in a file."""
        return await self._backend.read_file(self._sandbox, path, user)

    async def read_text(self, path: str, *, user: str = "") -> str:
        """Return what is in a file, which is UTF-8."""
        return (await self.read(path, user=user)).decode()

    async def write(self, path: str, data: str | bytes, *, mode: int | None = None, user: str = "") -> n.FileInfo:
        """Write a file, and the directories above it that are not there."""
        content = data.encode() if isinstance(data, str) else data
        return await self._backend.write_file(self._sandbox, path, content, mode, user)

    async def list(self, path: str, *, depth: int = 1, user: str = "") -> list[n.FileInfo]:
        """List what is in a directory."""
        return await self._backend.list_files(self._sandbox, path, depth, user)

    async def stat(self, path: str, *, user: str = "") -> n.FileInfo:
        """Say what a path is."""
        return await self._backend.stat_file(self._sandbox, path, user)

    async def mkdir(self, path: str, *, user: str = "") -> n.FileInfo:
        """Make a directory, and those above it."""
        return await self._backend.make_directory(self._sandbox, path, user)

    async def move(self, source: str, target: str, *, user: str = "") -> n.FileInfo:
        """Give a file or a directory another name."""
        return await self._backend.move_file(self._sandbox, source, target, user)

    async def remove(self, path: str, *, user: str = "") -> None:
        """Remove a file, or a directory with all that is in it."""
        await self._backend.remove_file(self._sandbox, path, user)
