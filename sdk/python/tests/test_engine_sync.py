# Generated from tests/test_engine_async.py by tools/unasync.py. Edit that file.
"""A server that the client starts on demand. The blocking test is generated from this one."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import brig
from brig.sync import SandboxClient, SandboxSpec

pytestmark = pytest.mark.skipif("BRIG_BINARY" not in os.environ, reason="there is no BRIG_BINARY")


def pid(data: Path) -> int:
    return int(json.loads((data / "server.json").read_bytes())["pid"])


def free(data: Path) -> bool:
    """Wait until no process owns a data folder."""
    for _ in range(500):
        with open(data / "owner.lock") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.02)
    return False


def test_on_demand(tmp_path: Path) -> None:
    with SandboxClient("local", data_dir=tmp_path) as client:
        assert list(tmp_path.iterdir()) == []  # nothing is started before it is needed
        sandbox = client.create(SandboxSpec("one", image=None))
        sandbox.shell("echo kept > f")
        # Other clients find the server, and do not stop it.
        with SandboxClient("local", data_dir=tmp_path) as other:
            assert other.list() == ["one"]
        assert (sandbox.shell("cat f")).stdout == "kept\n"
        # The client replaces a server that was killed, and the sandbox continues.
        os.kill(pid(tmp_path), signal.SIGKILL)
        assert free(tmp_path)
        assert (sandbox.shell("cat f")).stdout == "kept\n"
    assert free(tmp_path)
    with SandboxClient("local", data_dir=tmp_path) as client:
        assert ((client.get("one")).shell("cat f")).stdout == "kept\n"
        client.remove("one")
    assert free(tmp_path)


def test_server_ends_with_its_program(tmp_path: Path) -> None:
    program = "import time; from brig.sync import SandboxClient; c = SandboxClient(); c.list(); print(flush=True); time.sleep(60)"
    local = {"BRIG_URL": "local", "BRIG_DATA_DIR": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **local}, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"\n"
    os.kill(pid(tmp_path), 0)
    child.kill()
    child.wait()
    child.stdout.close()
    assert free(tmp_path)


def test_errors_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SandboxClient("local", data_dir=tmp_path, binary="/no/such/brig") as client:
        with pytest.raises(brig.SandboxUnavailable, match="cannot start /no/such/brig"):
            client.list()
    monkeypatch.setenv("BRIG_CONFIG", "/no/such/file")
    with SandboxClient("local", data_dir=tmp_path) as client:
        with pytest.raises(brig.SandboxUnavailable, match="/no/such/file"):
            client.list()
    monkeypatch.delenv("BRIG_BINARY")
    monkeypatch.setenv("PATH", "/nonexistent")
    with SandboxClient("local", data_dir=tmp_path) as client:
        with pytest.raises(brig.SandboxUnavailable) as none:
            client.list()
    assert "BRIG_BINARY" in none.value.hint
