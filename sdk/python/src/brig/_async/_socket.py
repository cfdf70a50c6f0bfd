"""The way to the server of a data folder: the socket in it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import httpcore
import httpx

from .._engine import check_folder, check_peer, socket_path


class SocketTransport(httpx.AsyncHTTPTransport):
    """Sends every request to the server of a data folder, by whatever host it is addressed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(verify=False, trust_env=False)  # without TLS, certificates need not be read
        self._pool = httpcore.AsyncConnectionPool(
            uds=str(folder),
            network_backend=_Checked(folder),
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
        )


class _Checked(httpcore.AsyncNetworkBackend):
    """Connects to the folder's socket. Nothing is sent before folder and listener are known to be the user's own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._backend = httpcore.AnyIOBackend()

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Connect, and check who listens."""
        check_folder(self._folder, os.geteuid())
        with socket_path(self._folder) as at:
            stream = await self._backend.connect_unix_socket(at, timeout, socket_options)
        try:
            check_peer(stream.get_extra_info("socket"), self._folder)
        except BaseException:
            await stream.aclose()
            raise
        return stream

    async def sleep(self, seconds: float) -> None:
        """Wait between attempts."""
        await self._backend.sleep(seconds)
