"""A script that runs against every kind of server, and must print the same for each.

The only differences allowed are operations that a server's protocol lacks. The script
prints that they were rejected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from brig import AlreadyExistsError, SandboxClient, SandboxSpec, UnsupportedError

LABELS = {"agent": "analyst", "run": "7"}


async def attempt(what: str, f: Callable[[], Awaitable[None]]) -> None:
    """Call f, and print the error if the service rejects it."""
    try:
        await f()
    except UnsupportedError as e:
        print(f"{what}: refused, {e.field}")


async def life(client: SandboxClient) -> None:
    """The life of a sandbox."""
    sandbox = await client.create(SandboxSpec("agent", labels=LABELS, memory_mib=256))
    print("names:", await client.list(labels=LABELS))
    try:
        await client.create(SandboxSpec("agent"))
    except AlreadyExistsError as e:
        print("again:", e.code)
    r = await sandbox.exec("/bin/echo", ["$HOME;x", "*"])
    print("exec:", repr(r.output), r.exit_code, r.ok, r.truncated)
    r = await sandbox.shell("echo a | tr a b; echo oops >&2; exit 3")
    print("shell:", repr(r.stdout), repr(r.stderr), r.exit_code, r.ok)
    r = await sandbox.shell("echo begun; sleep 60", timeout=2)
    print("late:", repr(r.stdout), r.exit_code, r.timed_out)
    again = await client.get("agent")
    print("python:", (await again.exec("python3", ["-c", "print(6 * 7)"])).stdout.strip())
    print("labels:", (await again.info()).labels)
    print("logs:", repr(await sandbox.logs(tail=2)))
    await sandbox.stop()
    print("stopped:", (await sandbox.info()).state)
    await sandbox.kill()
    await client.remove("agent")
    print("names:", await client.list(labels=LABELS))


async def given(client: SandboxClient) -> None:
    """A secret and a workspace."""
    await client.put_secret("api-token", "swordfish-swordfish")
    await client.create_workspace("data")
    async with await client.create(SandboxSpec("worker", workspace="data", secrets=("api-token",))) as sandbox:
        print("secret:", (await sandbox.shell('printf %s "$API_TOKEN" | wc -c')).stdout.strip())
        print("wrote:", (await sandbox.shell("mkdir out; echo one > out/a.txt; pwd")).stdout.strip())
        await sandbox.stop()
    async with await client.create(SandboxSpec("worker", workspace="data")) as sandbox:
        print("kept:", (await sandbox.shell("cat out/a.txt; echo ${API_TOKEN-none}")).stdout.split())
    print("read:", await client.read_workspace_file("data", "/workspace/out/a.txt"))
    await client.remove_workspace("data")
    await client.remove_secret("api-token")


FETCH = """
import socket, sys
s = socket.create_connection((sys.argv[1], 80), 20)
s.sendall(b"GET / HTTP/1.0\\r\\nHost: " + sys.argv[1].encode() + b"\\r\\n\\r\\n")
print(s.makefile().readline().strip())
"""


async def reach(client: SandboxClient) -> None:
    """Egress rules."""
    async with await client.create(SandboxSpec("net", egress=("ok.test",))) as sandbox:
        print("allowed:", (await sandbox.exec("python3", ["-c", FETCH, "ok.test"])).stdout.strip())
        r = await sandbox.exec("python3", ["-c", FETCH, "other.test"])
        print("denied:", r.exit_code, r.stderr.strip().splitlines()[-1].split(":")[0])


async def once(client: SandboxClient) -> None:
    """One-shot runs."""
    print("run_python:", (await client.run_python("print(sum(range(10)))", labels=LABELS)).stdout.strip())
    r = await client.run_shell("node -e 'console.log(6 * 7)'; exit 4", image="node:20-slim")
    print("run_shell:", r.stdout.strip(), r.exit_code)
    r = await client.run_python("import sys; print('no', file=sys.stderr); raise SystemExit(5)")
    print("failing:", repr(r.output), r.exit_code)
    print("names:", await client.list(labels=LABELS))


async def main() -> None:
    """Run all parts."""
    async with SandboxClient() as client:
        await life(client)
        await attempt("given", lambda: given(client))
        await attempt("reach", lambda: reach(client))
        await once(client)


asyncio.run(main())
