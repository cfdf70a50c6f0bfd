"""The files of a sandbox."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _nouns as n
from ._backend import Backend
from ._stream import FileWatch


class Files:
    """The files of a running sandbox.

    A relative path starts in the sandbox's ``default_cwd``, or else in ``/workspace``.
    """

    def __init__(self, backend: Backend, sandbox: str) -> None:
        self._backend, self._sandbox = backend, sandbox

    async def read(self, path: str, *, offset: int = 0, length: int | None = None, user: str = "") -> bytes:
        """Return the content of a file, or ``length`` bytes from ``offset`` on."""
        return await self._backend.read_file(self._sandbox, path, user, offset, length)

    async def read_text(self, path: str, *, user: str = "") -> str:
        """Return the content of a file as UTF-8 text."""
        return (await self.read(path, user=user)).decode()

    async def write(self, path: str, data: str | bytes, *, mode: int | None = None, user: str = "") -> n.FileInfo:
        """Write a file, and create missing parent directories."""
        content = data.encode() if isinstance(data, str) else data
        return await self._backend.write_file(self._sandbox, path, content, mode, user)

    async def list(self, path: str, *, depth: int = 1, user: str = "") -> list[n.FileInfo]:
        """List the entries of a directory."""
        return await self._backend.list_files(self._sandbox, path, depth, user)

    async def stat(self, path: str, *, user: str = "") -> n.FileInfo:
        """Return the type, size, mode and owner of a file."""
        return await self._backend.stat_file(self._sandbox, path, user)

    async def mkdir(self, path: str, *, user: str = "") -> n.FileInfo:
        """Create a directory, and its missing parents."""
        return await self._backend.make_directory(self._sandbox, path, user)

    async def move(self, source: str, target: str, *, user: str = "") -> n.FileInfo:
        """Move or rename a file or directory."""
        return await self._backend.move_file(self._sandbox, source, target, user)

    async def compose(self, sources: Sequence[str], target: str, *, user: str = "") -> n.FileInfo:
        """Join files into one, in order, and remove them. It completes an upload in parts."""
        return await self._backend.compose_file(self._sandbox, sources, target, user)

    def watch(self, path: str, *, recursive: bool = False, user: str = "") -> FileWatch:
        """Watch a directory for changes."""
        return FileWatch(self._backend.watch_files(self._sandbox, path, recursive, user))

    async def remove(self, path: str, *, user: str = "") -> None:
        """Remove a file, or a directory with its contents."""
        await self._backend.remove_file(self._sandbox, path, user)
