"""The server of a data folder on this machine, which the client starts if none runs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import httpx

from . import _address as address
from ._errors import SandboxUnavailable

_START_TIME = 30.0  # seconds within which a started server must answer
_STOP_TIME = 15.0


class Engine:
    """The server of one data folder. The client uses a running one, or starts one.

    A started server stops when its standard input closes, so it ends with this process,
    however that ends. Sandboxes outlive the server.
    """

    def __init__(self, binary: str | None = None, data_dir: str | os.PathLike[str] | None = None) -> None:
        self._binary = binary
        self._dir = Path(data_dir) if data_dir else data_folder()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> tuple[str, str]:
        """Return the address and the key of a ready server, and start it if necessary."""
        with self._lock:
            deadline = time.monotonic() + _START_TIME
            started = False
            with tempfile.TemporaryFile() as log:
                while True:
                    if url := self._served():
                        check_folder(self._dir, os.geteuid())
                        if self._answers(url):
                            return url, self._key()
                    running = self._process is not None and self._process.poll() is None
                    if (started and not running and not self._owned()) or time.monotonic() > deadline:
                        raise self._failed(log.fileno())
                    if not started and not running and not self._owned():
                        self._start(log.fileno())
                        started = True
                    time.sleep(0.02)

    def announced(self, url: str) -> tuple[str, str]:
        """Return the address and the key of the folder's server if a URL names it, or else empty strings.

        The key has all rights on that server, so the client sends it only there. It uses the
        address that the server has announced, because localhost may resolve to another one.
        """
        served = self._served()
        if not served or not address.same(url, served):
            return "", ""
        check_folder(self._dir, os.geteuid())
        return served, self._key()

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
        argv = [binary, "serve", "--until-eof", "--listen", "127.0.0.1:0", "--data-dir", str(self._dir)]
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
            with open(self._dir / "owner.lock", "rb") as f:
                # A shared lock, so that two clients that check do not take each other for an owner.
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _served(self) -> str:
        # Send the key only to the process that holds the lock. An owner removes the address
        # that an earlier one has announced, so check for an owner before the file is read.
        if not self._owned():
            return ""
        try:
            return str(json.loads((self._dir / "server.json").read_bytes())["url"])
        except (OSError, ValueError, KeyError, TypeError):
            return ""

    def _answers(self, url: str) -> bool:
        try:
            return httpx.get(f"{url}/readyz", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def _key(self) -> str:
        try:
            return (self._dir / "admin.key").read_text().strip()
        except OSError as e:
            raise SandboxUnavailable(
                f"the key of the server in {self._dir} cannot be read", hint="set BRIG_API_KEY to a key of your own"
            ) from e

    def _failed(self, log: int) -> SandboxUnavailable:
        size = os.fstat(log).st_size
        output = os.pread(log, 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()
        return SandboxUnavailable(f"brig serve failed on {self._dir}: {output or 'it printed nothing'}", hint="run brig doctor")


def check_folder(folder: str | os.PathLike[str], uid: int) -> None:
    """Reject a data folder that another user owns, can write or can replace, as the command line does.

    Such a user could announce the address of their own server there.
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


def data_folder() -> Path:
    """Return the data folder that the command line uses."""
    if d := os.environ.get("BRIG_DATA_DIR"):
        return Path(d).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/brig")
    if (d := os.environ.get("XDG_DATA_HOME", "")).startswith("/"):
        return Path(d) / "brig"
    return Path.home() / ".local" / "share" / "brig"
