"""An engine on this machine: the server of a data folder, started where none runs."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import httpx

from ._errors import SandboxUnavailable

_START_TIME = 30.0  # seconds in which an engine must answer
_STOP_TIME = 15.0


class Engine:
    """The server of one data folder. One that runs is used, otherwise one is started.

    It is told to end when its standard input does, so that it ends with this
    process, however that ends. Sandboxes outlive it, as they do any server.
    """

    def __init__(self, binary: str | None = None, data_dir: str | os.PathLike[str] | None = None) -> None:
        self._binary = binary
        self._dir = Path(data_dir) if data_dir else data_folder()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self) -> tuple[str, str]:
        """Return the address and the key of a server that answers."""
        with self._lock:
            deadline = time.monotonic() + _START_TIME
            started = False
            with tempfile.TemporaryFile() as log:
                while True:
                    if (url := self._served()) and self._answers(url):
                        return url, self._key()
                    running = self._process is not None and self._process.poll() is None
                    if (started and not running and not self._owned()) or time.monotonic() > deadline:
                        raise self._failed(log.fileno())
                    if not started and not running and not self._owned():
                        self._start(log.fileno())
                        started = True
                    time.sleep(0.02)

    def end(self) -> None:
        """End the server, if it is ours."""
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
                "there is no server, and no brig to start one",
                hint="install brig, name it in BRIG_BINARY, or name a server in BRIG_URL",
            )
        argv = [binary, "serve", "--until-eof", "--listen", "127.0.0.1:0", "--data-dir", str(self._dir)]
        if not os.environ.get("BRIG_CONFIG"):
            argv += ["--pool", "0"]
        try:
            # A group of its own: what interrupts this program is for this program to handle.
            self._process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
        except OSError as e:
            raise SandboxUnavailable(f"{binary} cannot be started: {e.strerror}", hint="see BRIG_BINARY") from e

    def _owned(self) -> bool:
        """Report whether somebody uses the data folder: then what it says of a server is true."""
        try:
            with open(self._dir / "owner.lock", "rb") as f:
                # Those who ask share the lock: else each would take another one for an owner.
                fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def _served(self) -> str:
        # The key goes to nobody but who holds the lock. An owner removes what an
        # earlier one has announced, so that it is read once there is an owner.
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
                f"the key of the server in {self._dir} cannot be read", hint="give a key of your own in BRIG_API_KEY"
            ) from e

    def _failed(self, log: int) -> SandboxUnavailable:
        size = os.fstat(log).st_size
        said = os.pread(log, 2000, max(0, size - 2000)).decode("utf-8", "replace").strip()
        return SandboxUnavailable(f"brig does not serve {self._dir}: {said or 'it says nothing'}", hint="brig doctor")


def data_folder() -> Path:
    """Find the data folder as the command line does."""
    if d := os.environ.get("BRIG_DATA_DIR"):
        return Path(d).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/brig")
    if (d := os.environ.get("XDG_DATA_HOME", "")).startswith("/"):
        return Path(d) / "brig"
    return Path.home() / ".local" / "share" / "brig"
