"""The files of a volume."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable

from .. import _nouns as n
from ._backend import Backend


class VolumeFiles:
    """The files of a volume, whether or not a sandbox has mounted it.

    Paths are relative to the root of the volume, with or without a slash at the beginning. The
    calls do not depend on the owner and the mode of files. A new path belongs to 1000:1000, the
    default user of sandboxes, unless ``uid`` and ``gid`` are given.
    """

    def __init__(self, backend: Backend, volume: str) -> None:
        self._backend, self._volume = backend, volume

    async def read(self, path: str) -> bytes:
        """Return the content of a file."""
        return await self._backend.read_volume_file(self._volume, path)

    async def read_text(self, path: str) -> str:
        """Return the content of a file as UTF-8 text."""
        return (await self.read(path)).decode()

    def stream(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of a file in chunks. Close the generator to end it earlier."""
        return self._backend.stream_volume_file(self._volume, path)

    async def write(
        self,
        path: str,
        data: str | bytes | AsyncIterable[bytes],
        *,
        force: bool = False,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
    ) -> n.VolumeFile:
        """Write a file. ``force`` creates missing parents, and replaces an existing file.

        A client that waits for a server at its capacity sends an iterable only once.
        """
        content = data.encode() if isinstance(data, str) else data
        return await self._backend.write_volume_file(self._volume, path, content, force, _attributes(mode, uid, gid))

    async def list(self, path: str = "/", *, depth: int = 1) -> list[n.VolumeFile]:
        """List the entries of a directory, sorted by path."""
        return await self._backend.list_volume_files(self._volume, path, depth)

    async def stat(self, path: str) -> n.VolumeFile:
        """Return the type, size, mode and owner of a path. A link is not followed."""
        return await self._backend.stat_volume_file(self._volume, path)

    async def mkdir(
        self, path: str, *, force: bool = False, mode: int | None = None, uid: int | None = None, gid: int | None = None
    ) -> n.VolumeFile:
        """Create a directory. ``force`` creates missing parents, and accepts an existing directory."""
        return await self._backend.make_volume_directory(self._volume, path, force, _attributes(mode, uid, gid))

    async def set_attributes(
        self, path: str, *, mode: int | None = None, uid: int | None = None, gid: int | None = None
    ) -> n.VolumeFile:
        """Change the mode or the owner of a path."""
        return await self._backend.set_volume_attributes(self._volume, path, _attributes(mode, uid, gid))

    async def remove(self, path: str) -> None:
        """Remove a file, or a directory with its contents."""
        await self._backend.remove_volume_file(self._volume, path)


def _attributes(mode: int | None, uid: int | None, gid: int | None) -> dict[str, int]:
    given = {"mode": mode, "uid": uid, "gid": gid}
    return {name: number for name, number in given.items() if number is not None}
