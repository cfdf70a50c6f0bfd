"""The server of a data folder on this machine, which the client starts if none runs."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import _address as address
from ._errors import SandboxUnavailable

_START_TIME = 30.0  # seconds within which a started server must answer
_STOP_TIME = 15.0

#: The server's socket in the data folder. Owners of the folder need no key there.
SOCKET = "brig.sock"
_MAX_PATH = 107  # bytes of a path in a socket's address


class Engine:
    """The server of one data folder. The client uses a running one, or starts one.

    A started server stops when its standard input closes, so it ends with this process,
    however that ends. Sandboxes outlive the server.
    """

    def __init__(self, binary: str | None = None, data_dir: str | os.PathLike[str] | None = None) -> None:
        self._binary = binary
        self.folder = Path(data_dir).absolute() if data_dir else data_folder()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Return when a server answers on the folder's socket."""
        with self._lock:
            deadline = time.monotonic() + _START_TIME
            started = False
            with tempfile.TemporaryFile() as log:
                while True:
                    if self._served() and self._answers():
                        return
                    running = self._process is not None and self._process.poll() is None
                    if (started and not running and not self._owned()) or time.monotonic() > deadline:
                        raise self._failed(log.fileno())
                    if not started and not running and not self._owned():
                        self._start(log.fileno())
                        started = True
                    time.sleep(0.02)

    def announced(self, url: str) -> bool:
        """Report whether a URL is that of the folder's server. Clients then use its socket."""
        served = self._served()
        if not served or not address.same(url, served):
            return False
        check_folder(self.folder, os.geteuid())
        return True

    def end(self) -> None:
        """Stop the server if this client has started it."""
        with self._lock:
            process, self._process = self._process, None
            if process is None:
                return
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(_STOP_TIME)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, log: int) -> None:
        binary = self._binary or os.environ.get("BRIG_BINARY") or shutil.which("brig")
        if not binary:
            raise SandboxUnavailable(
                "no server runs, and the program brig that would start one is not installed",
                hint="install brig, set BRIG_BINARY to its path, or set BRIG_URL to a server",
            )
        argv = [binary, "serve", "--until-eof", "--listen", "127.0.0.1:0", "--data-dir", str(self.folder)]
        if not os.environ.get("BRIG_CONFIG"):
            argv += ["--pool", "0"]
        try:
            # In a new session, so that Ctrl-C interrupts only this program.
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
        except OSError as e:
            raise SandboxUnavailable(f"cannot start {binary}: {e.strerror}", hint="check binary or BRIG_BINARY") from e

    def _owned(self) -> bool:
        """Report whether a process owns the data folder. Only then is the announced address valid."""
        try:
            with open(self.folder / "owner.lock", "rb") as f:
                # Readers share the lock, so that none mistakes another reader for the owner.
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _served(self) -> str:
        # An owner removes the announcement of an earlier one, so it is valid only while
        # there is an owner.
        if not self._owned():
            return ""
        try:
            return str(json.loads((self.folder / "server.json").read_bytes())["url"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _answers(self) -> bool:
        check_folder(self.folder, os.geteuid())
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(5)
            try:
                with socket_path(self.folder) as path:
                    connection.connect(path)
                check_peer(connection, self.folder)
                request = http.client.HTTPConnection("localhost")
                request.sock = connection
                request.request("GET", "/readyz")
                return request.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False

    def _failed(self, log: int) -> SandboxUnavailable:
        if self._owned():
            return SandboxUnavailable(
                f"the process that uses {self.folder} does not answer on {SOCKET} there",
                hint="restart the server if its version has no socket, or set BRIG_URL and BRIG_API_KEY",
            )
        size = os.fstat(log).st_size
        said = os.pread(log, 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()
        return SandboxUnavailable(f"brig serve failed on {self.folder}: {said or 'it printed nothing'}", hint="run brig doctor")


def check_folder(folder: str | os.PathLike[str], uid: int) -> None:
    """Reject a data folder that another user owns, can write or can replace, as the command line does.

    Such a user could make clients use another server.
    """
    at = Path(os.path.realpath(folder))
    why = ""
    try:
        info = at.lstat()
        if info.st_uid != uid:
            why = f"belongs to another user (uid {info.st_uid}, not {uid})"
        elif info.st_mode & 0o022:
            why = f"can be written by other users (mode {stat.S_IMODE(info.st_mode):04o})"
        for above in at.parents if not why else ():
            info = above.lstat()
            if info.st_uid not in (uid, 0):
                why = f"is below {above}, which belongs to another user (uid {info.st_uid})"
            elif info.st_mode & 0o002 and not info.st_mode & stat.S_ISVTX:
                why = f"is below {above}, to which every user may write"
            if why:
                break
    except OSError as e:
        why = f"cannot be read: {e.strerror}"
    if why:
        raise SandboxUnavailable(
            f"the data folder {at} {why}, so the server that it names is not trusted",
            hint="set BRIG_DATA_DIR to a folder of your own, or BRIG_API_KEY to the server's key",
        )


@contextmanager
def socket_path(folder: Path) -> Iterator[str]:
    """Yield a path of the folder's socket that fits into an address, however long that of the folder is."""
    path = str(folder / SOCKET)
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield path
        return
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{SOCKET}"
    finally:
        os.close(fd)


def check_peer(connection: socket.socket, folder: Path) -> None:
    """Reject a socket on which another user listens, by the credentials from the kernel."""
    given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    _, uid, _ = struct.unpack("iII", given)
    # All users of other user namespaces have this number.
    unknown = int(Path("/proc/sys/kernel/overflowuid").read_text())
    if uid == unknown or uid not in (os.geteuid(), 0):
        raise SandboxUnavailable(
            f"a process of another user (uid {uid}) listens on {folder / SOCKET}",
            hint="find it with ss -xlp, and remove the socket; in a container, run this in the server's container",
        )


def data_folder() -> Path:
    """Return the data folder that the command line uses."""
    if d := os.environ.get("BRIG_DATA_DIR"):
        return Path(d).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/brig")
    if (d := os.environ.get("XDG_DATA_HOME", "")).startswith("/"):
        return Path(d) / "brig"
    return Path.home() / ".local" / "share" / "brig"
