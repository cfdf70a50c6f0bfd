"""A service with E2B's protocol. The blocking test is generated from this one."""

from __future__ import annotations

import os
import uuid

import pytest

import brig
from brig import SandboxClient, SandboxSpec

pytestmark = pytest.mark.skipif("E2B_API_KEY" not in os.environ, reason="there is no E2B service")

IMAGES = {"python:3.11-slim": "base"}


def spec(**fields: object) -> SandboxSpec:
    return SandboxSpec(**{"name": f"t-{uuid.uuid4().hex[:8]}", **fields})  # type: ignore[arg-type]


async def test_commands() -> None:
    async with SandboxClient("e2b", templates=IMAGES) as client, await client.create(spec(env={"GLOBAL": "g"})) as sandbox:
        r = await sandbox.exec("/bin/echo", ["$HOME;x"])
        assert (r.stdout, r.stderr, r.exit_code) == ("$HOME;x\n", "", 0)
        r = await sandbox.shell("echo a | tr a b; echo $GLOBAL $MINE >&2; pwd; exit 3", env={"MINE": "m"}, cwd="/tmp")
        assert (r.stdout, r.stderr, r.exit_code) == ("b\n/tmp\n", "g m\n", 3)
        assert (await sandbox.exec("cat", stdin="é")).stdout == "é"
        assert (await sandbox.exec("cat", stdin="")).stdout == ""
        large = b"x" * (4 << 20)  # more than there is room for between here and there, either way
        assert len((await sandbox.exec("cat", stdin=large, timeout=60)).stdout) > 1 << 20
        assert (await sandbox.exec("head", ["-c", "3"], stdin=large, timeout=60)).stdout == "xxx"
        assert (await sandbox.exec("true", stdin=large, timeout=60)).ok
        r = await sandbox.shell("echo begun; sleep 60", timeout=1)
        assert (r.stdout, r.exit_code, r.timed_out) == ("begun\n", 124, True)
        r = await sandbox.shell("kill -9 $$")
        assert (r.exit_code, r.signal) == (137, "SIGKILL")
        async with sandbox.stream_shell("echo one; sleep 0.2; echo two >&2; exit 4") as output:
            got = [(chunk.stream, chunk.text) async for chunk in output]
        assert got == [("stdout", "one\n"), ("stderr", "two\n")] and output.result.exit_code == 4


async def test_life() -> None:
    async with SandboxClient("e2b", templates=IMAGES) as client:
        s = spec(labels={"suite": uuid.uuid4().hex}, ttl=60)
        sandbox = await client.create(s)
        with pytest.raises(brig.AlreadyExistsError):
            await client.create(s)
        info = await sandbox.info()
        assert (info.name, info.state, info.labels, info.provider) == (s.name, "running", s.labels, "e2b")
        assert await client.list(labels=s.labels) == [s.name]
        assert (await sandbox.extend(600)).expires > info.expires
        async with SandboxClient("e2b") as other:
            assert (await (await other.get(s.name)).exec("echo", ["hi"])).stdout == "hi\n"
        await sandbox.shell("echo 1; echo 2")
        assert await sandbox.logs(tail=1) == "2\n"
        await sandbox.stop()
        assert (await sandbox.info()).state == "stopped" and await client.list(labels=s.labels) == [s.name]
        with pytest.raises(brig.FailedPreconditionError):
            await sandbox.exec("true")
        await sandbox.kill()
        await client.remove(s.name)
        with pytest.raises(brig.NotFoundError):
            await client.get(s.name)
        with pytest.raises(brig.FailedPreconditionError) as much:
            await client.create(spec(memory_mib=1 << 20))
        assert much.value.field == "memory_mib" and await client.list(labels=s.labels) == []


async def test_one_shots() -> None:
    async with SandboxClient("e2b", templates=IMAGES) as client:
        before = await client.list()
        assert (await client.run_python("print(6 * 7)")).stdout == "42\n"
        r = await client.run_shell("echo out; echo err >&2; exit 5")
        assert (r.stdout, r.stderr, r.exit_code) == ("out\n", "err\n", 5) and r.sandbox.startswith("sh-")
        assert (await client.run("console.log(1 + 1)", language="javascript")).stdout == "2\n"
        assert (await client.run_command("cat", ["in"], files={"in": b"given"})).stdout == "given"
        with pytest.raises(brig.UnsupportedError) as lacks:
            await client.run("def main(n): return n", arguments={"n": 1})
        assert lacks.value.field == "arguments"
        with pytest.raises(brig.NotFoundError):
            await client.run_python("1", image="no-such-template")
        assert sorted(await client.list()) == sorted(before)


async def test_files_and_contexts() -> None:
    async with SandboxClient("e2b", templates=IMAGES) as client, await client.create(spec()) as sandbox:
        files = sandbox.files
        wrote = await files.write("/tmp/a/ü.txt", "hällo")
        assert (wrote.path, wrote.size, wrote.type) == ("/tmp/a/ü.txt", 6, "file")
        assert await files.read_text("/tmp/a/ü.txt") == "hällo"
        await files.mkdir("/tmp/a/d")
        await files.move("/tmp/a/ü.txt", "/tmp/a/d/moved")
        assert sorted(f.path for f in await files.list("/tmp/a", depth=2)) == ["/tmp/a/d", "/tmp/a/d/moved"]
        await files.remove("/tmp/a/d")
        with pytest.raises(brig.NotFoundError):
            await files.stat("/tmp/a/d")
        assert (await sandbox.run_code("r = 2")).text == ""
        result = await sandbox.run_code("print('p'); r * 21")
        assert (result.text, result.stdout, result.ok) == ("42", "p\n", True)
        async with await sandbox.create_context() as context:
            failed = await context.run("r")
            assert failed.error is not None and failed.error.name == "NameError"
        with pytest.raises(brig.UnsupportedError):
            await sandbox.commit()


async def test_missing_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SandboxClient("e2b", key="e2b_" + "0" * 40) as client:
        with pytest.raises(brig.AuthenticationError):
            await client.list()
    monkeypatch.delenv("E2B_API_KEY")
    with pytest.raises(brig.AuthenticationError) as none:
        SandboxClient("e2b")
    assert "E2B_API_KEY" in none.value.hint
