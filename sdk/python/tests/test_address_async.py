"""The servers to which the client sends a key. The blocking test is generated from this one."""

from __future__ import annotations

import fcntl
import json
import os
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

import brig
from brig import SandboxClient
from brig._engine import SOCKET, Engine, check_folder, socket_path

KEY = "brig_0123456789012345678901234567890123456789"


class Ear(ThreadingHTTPServer):
    """A server that records the keys that it receives, and can redirect to another one."""

    def __init__(self, host: str, onward: str = "") -> None:
        self.connections = 0
        self.keys: list[str] = []
        ear = self

        class Handler(BaseHTTPRequestHandler):
            def setup(self) -> None:
                ear.connections += 1
                super().setup()

            def do_GET(self) -> None:
                ear.keys.append(self.headers.get("Authorization") or self.headers.get("X-API-Key") or "")
                self.send_response(307 if onward else 418)
                self.send_header("Location", onward + self.path)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__((host, 0), Handler)
        self.daemon_threads = True
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}"


class SocketEar(socketserver.ThreadingUnixStreamServer):
    """A server on the socket of a data folder. It records the keys that it receives, and has one sandbox."""

    def __init__(self, folder: Path) -> None:
        self.keys: list[str] = []
        ear = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ear.keys.append(self.headers.get("Authorization") or "")
                answer = b'{"sandboxes": [], "next_cursor": ""}'
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        with socket_path(folder) as path:
            super().__init__(path, Handler)
        self.daemon_threads = True
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def end(self) -> None:
        """End as a server that is killed: the socket stays until the next one removes it."""
        self.shutdown()
        self.server_close()


@pytest.fixture
def near() -> Iterator[Ear]:
    ear = Ear("127.0.0.1")
    yield ear
    ear.shutdown()
    ear.server_close()


@pytest.fixture
def far() -> Iterator[Ear]:
    ear = Ear("0.0.0.0")  # no loopback, and yet it leads here
    yield ear
    ear.shutdown()
    ear.server_close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    proxies = ("HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
    for name in ("BRIG_URL", "BRIG_API_KEY", "BRIG_INSECURE_HTTP", "E2B_SANDBOX_URL", *proxies):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def asked(client: SandboxClient) -> None:
    """Send a request that every server here answers with an error."""
    async with client:
        with pytest.raises(brig.BrigError):
            await client.list()


@pytest.mark.parametrize("where", ["rest", "e2b"])
async def test_plain_http(far: Ear, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.setenv("E2B_API_URL", far.url)
    monkeypatch.setenv("BRIG_API_KEY", KEY)
    at, key = ("e2b", KEY) if where == "e2b" else (far.url, None)
    for value in ("", "0", "maybe"):
        monkeypatch.setenv("BRIG_INSECURE_HTTP", value)
        with pytest.raises(brig.InvalidArgumentError, match=r"plain HTTP to 0\.0\.0\.0") as e:
            SandboxClient(at, key=key)
        assert "insecure_http" in e.value.hint and e.value.field == ("E2B_API_URL" if where == "e2b" else "where")
    assert far.connections == 0
    await asked(SandboxClient(at, key=key, insecure_http=True))
    monkeypatch.setenv("BRIG_INSECURE_HTTP", "1")
    await asked(SandboxClient(at, key=key))
    assert [k.removeprefix("Bearer ") for k in far.keys] == [KEY, KEY]


@pytest.mark.parametrize(
    ("url", "fits"),
    [
        ("http://127.8.9.10:1", True),
        ("http://[::1]:1", True),
        ("http://[::ffff:127.0.0.1]:1", True),
        ("http://localhost:1", True),
        ("https://brig.example", True),
        ("http://brig.example", False),
        ("http://10.0.0.1", False),
        ("http://localhost.example", False),
        ("http://127.0.0.1@brig.example", False),
        ("http://127.1", False),
        ("http://[::]:1", False),
    ],
)
async def test_addresses(url: str, fits: bool) -> None:
    if not fits:
        with pytest.raises(brig.InvalidArgumentError):
            SandboxClient(url, key=KEY)
        return
    async with SandboxClient(url, key=KEY):
        pass


async def test_no_proxy_for_this_machine(near: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Ear("127.0.0.1")
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    await asked(SandboxClient(near.url, key=KEY))
    monkeypatch.setenv("E2B_API_URL", near.url)
    await asked(SandboxClient("e2b", key=KEY))
    assert (near.keys, proxy.connections) == ([f"Bearer {KEY}", KEY], 0)
    proxy.shutdown()
    proxy.server_close()


async def test_redirects(near: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Ear("127.0.0.1", near.url)
    await asked(SandboxClient(first.url, key=KEY, http=httpx.AsyncClient(follow_redirects=True)))
    monkeypatch.setenv("E2B_API_URL", first.url)
    await asked(SandboxClient("e2b", key=KEY, http=httpx.AsyncClient(follow_redirects=True)))
    assert (first.keys, near.connections) == ([f"Bearer {KEY}", KEY], 0)
    first.shutdown()
    first.server_close()


async def test_announcement_without_owner_is_ignored(near: Ear, tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text(json.dumps({"url": near.url, "pid": 1}))
    with open(tmp_path / "owner.lock", "w") as looks, open(tmp_path / "owner.lock") as owns:
        # Another process only checks whether the folder has an owner.
        fcntl.flock(looks, fcntl.LOCK_SH)
        assert Engine("/no/such/brig", tmp_path)._served() == ""
        fcntl.flock(looks, fcntl.LOCK_UN)
        fcntl.flock(owns, fcntl.LOCK_EX)
        assert Engine("/no/such/brig", tmp_path)._served() == near.url
    assert near.connections == 0


@pytest.mark.parametrize("how", ["group", "others", "above", "owner"])
async def test_folder_of_others_is_not_trusted(near: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.delenv("BRIG_API_KEY", raising=False)
    tmp_path.chmod(0o700)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "admin.key").write_text(KEY + "\n")
    (data / "server.json").write_text(json.dumps({"url": near.url, "pid": 1}))
    with open(data / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The control: in the user's own folder, the announcement is trusted.
        check_folder(data, os.geteuid())
        assert Engine("/no/such/brig", data).announced(near.url)
        if how == "owner":
            uid = os.geteuid()
            monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        else:
            at, mode = {"group": (data, 0o770), "others": (data, 0o702), "above": (tmp_path, 0o777)}[how]
            at.chmod(mode)
        with pytest.raises(brig.SandboxUnavailable, match="not trusted"):
            Engine("/no/such/brig", data).begin()
        with pytest.raises(brig.SandboxUnavailable, match="not trusted"):
            Engine("/no/such/brig", data).announced(near.url)
        with pytest.raises(brig.SandboxUnavailable, match="not trusted"):
            SandboxClient(near.url, data_dir=data)
        tmp_path.chmod(0o700)
    assert near.keys == []


@pytest.mark.parametrize("asked", ["http://127.0.0.1:{port}", "http://localhost:{port}/", "http://[::ffff:127.0.0.1]:{port}"])
async def test_folder_key_by_url(near: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.delenv("BRIG_API_KEY", raising=False)
    tmp_path.chmod(0o700)
    (tmp_path / "admin.key").write_text(KEY + "\n")
    (tmp_path / "server.json").write_text(json.dumps({"url": near.url, "pid": 1}))
    here = SocketEar(tmp_path)
    with open(tmp_path / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with SandboxClient(asked.format(port=near.server_port), data_dir=tmp_path) as client:
            assert await client.list() == []
        # It is asked by the folder's socket, and no key is sent, not even there.
        assert (here.keys, near.connections) == ([""], 0)
        with pytest.raises(brig.InvalidArgumentError, match="by its socket"):
            SandboxClient(near.url, data_dir=tmp_path, http=httpx.AsyncClient())
        # The controls: another server is asked by its URL, and so is this one with a key.
        other = Ear("127.0.0.1")
        await asked_without_success(other.url, tmp_path, None)
        await asked_without_success(near.url, tmp_path, KEY)
        assert (other.keys, near.keys, here.keys) == ([""], [f"Bearer {KEY}"], [""])
        other.shutdown()
        other.server_close()
    # After the folder's lock is free, no process gets the key.
    near.keys.clear()
    await asked_without_success(near.url, tmp_path, None)
    assert (near.keys, here.keys) == ([""], [""])
    here.end()


async def asked_without_success(url: str, folder: Path, key: str | None) -> None:
    """Ask a server that has nothing."""
    async with SandboxClient(url, key=key, data_dir=folder) as client:
        with pytest.raises(brig.BrigError):
            await client.list()


@pytest.mark.parametrize("length", [1, 150])
async def test_the_next_server_is_used(near: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.delenv("BRIG_API_KEY", raising=False)
    tmp_path.chmod(0o700)
    data = tmp_path / ("d" * length)
    data.mkdir(mode=0o700)
    (data / "admin.key").write_text(KEY + "\n")
    (data / "server.json").write_text(json.dumps({"url": near.url, "pid": 1}))
    with open(data / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = SocketEar(data)
        async with SandboxClient("local", data_dir=data, binary="/no/such/brig") as client:
            assert await client.list() == []
            first.end()
            fcntl.flock(lock, fcntl.LOCK_UN)
            with pytest.raises(brig.SandboxUnavailable, match="/no/such/brig"):
                await client.list()
            fcntl.flock(lock, fcntl.LOCK_EX)
            (data / SOCKET).unlink()
            second = SocketEar(data)
            assert await client.list() == []
            # Nothing is sent once others may write the folder.
            second.end()
            (data / SOCKET).unlink()
            third = SocketEar(data)
            data.chmod(0o770)
            with pytest.raises(brig.SandboxUnavailable, match="not trusted"):
                await client.list()
            data.chmod(0o700)
            assert third.keys == []
            assert await client.list() == []
            third.end()
    assert "" in first.keys and set(first.keys + second.keys + third.keys) == {""}
    assert near.connections == 0


LISTENER = """
import os, socket, sys
os.setuid(61111)
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o666)
s.listen()
print(flush=True)
while True:
    c, _ = s.accept()
    c.settimeout(10)
    print(len(c.recv(1)), flush=True)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another user")
async def test_a_socket_of_another_user(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    for above in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        above.chmod(0o755)
    other = subprocess.Popen([sys.executable, "-c", LISTENER, str(data / SOCKET)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    if other.stdout.readline() != "\n":
        other.wait()
        pytest.skip("another user cannot reach the folder for temporary files")
    data.chmod(0o700)
    (data / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": 1}))
    with open(data / "owner.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        async with SandboxClient("local", data_dir=data) as client:
            with pytest.raises(brig.SandboxUnavailable, match=r"another user \(uid 61111\)"):
                await client.list()
        assert other.stdout.readline() == "0\n"  # it was connected, and got nothing
        async with SandboxClient("http://127.0.0.1:1", data_dir=data) as client:
            with pytest.raises(brig.SandboxUnavailable, match=r"another user \(uid 61111\)"):
                await client.list()
        assert other.stdout.readline() == "0\n"
        # The control: a listener of one's own.
        (data / SOCKET).unlink()
        own = SocketEar(data)
        async with SandboxClient("http://127.0.0.1:1", data_dir=data) as client:
            assert await client.list() == []
        own.end()
    other.kill()
    other.wait()
    other.stdout.close()
