"""Features of asyncio: concurrent calls and cancellation."""

from __future__ import annotations

import asyncio

import pytest

from brig import SandboxClient, SandboxSpec

#: Waits until no process has that name, and fails after a while.
GONE = "for i in $(seq 200); do pgrep -f 'sleep 432[1]' >/dev/null || exit 0; sleep 0.05; done; exit 1"
THERE = "for i in $(seq 200); do pgrep -f 'sleep 432[1]' >/dev/null && exit 0; sleep 0.05; done; exit 1"


async def test_concurrent_calls(where: str) -> None:
    async with SandboxClient(where) as client, await client.create(SandboxSpec("many", image=None)) as sandbox:
        done = await asyncio.gather(*(sandbox.shell(f"sleep 0.2; echo {i}") for i in range(8)))
        assert [r.stdout for r in done] == [f"{i}\n" for i in range(8)]


@pytest.mark.parametrize("how", ["exec", "stream"])
async def test_cancelled_command_ends(where: str, how: str) -> None:
    async with SandboxClient(where) as client, await client.create(SandboxSpec(f"off-{how}", image=None)) as sandbox:

        async def wait() -> None:
            if how == "exec":
                await sandbox.exec("sleep", ["4321"])
            async with sandbox.stream("sleep", ["4321"]) as output:
                async for _ in output:
                    pass

        task = asyncio.create_task(wait())
        assert (await sandbox.shell(THERE)).ok
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await sandbox.shell(GONE)).ok


async def test_cancelled_run_leaves_no_sandbox(where: str) -> None:
    async with SandboxClient(where) as client:
        task = asyncio.create_task(client.run("import time; time.sleep(600)", name="shot", timeout=600))
        while "shot" not in await client.list():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(500):
            if "shot" not in await client.list():
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the sandbox is still there")
