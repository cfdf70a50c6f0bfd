"""Parallel exploration: one sandbox is prepared, and every candidate continues from
its state in a copy of its own. The first result ends the others.

    python explore.py
"""

import asyncio

from brig import BrigError, SandboxClient, SandboxHandle, SandboxSpec

# Runs once: the copies have the variables and imports.
PREPARE = """
from math import isqrt
n = 1000003 * 999983
"""

# Candidates of a model: a wrong one, a fast one, an endless one, and one that
# uses too much memory.
CANDIDATES = {
    "guess": "assert n % 7 == 0\n7",
    "fermat": """
a = isqrt(n) + 1
while isqrt(a * a - n) ** 2 != a * a - n:
    a += 1
a - isqrt(a * a - n)
""",
    "patience": "while True: pass",
    "greed": "len([n] * 10**9)",
}


async def candidate(sandbox: SandboxHandle, name: str) -> tuple[str, int]:
    result = await sandbox.run_code(CANDIDATES[name], timeout=120)
    if not result.ok:
        raise ValueError(f"{name}: {result.error.name if result.error else 'no value'}")
    return name, int(result.text)


async def explore(client: SandboxClient) -> tuple[str, int]:
    async with await client.create(SandboxSpec("", image=None, memory_mib=128)) as base:
        await base.run_code(PREPARE)
        copies = await base.fork(len(CANDIDATES))
    tasks = {asyncio.create_task(candidate(*c)) for c in zip(copies, CANDIDATES, strict=True)}
    try:
        for task in asyncio.as_completed(tasks):
            try:
                return await task
            except (ValueError, BrigError) as error:
                print(f"gave up: {error}")
        raise RuntimeError("nobody found it")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(c.remove() for c in copies))


async def main() -> None:
    async with SandboxClient() as client:
        name, factor = await explore(client)
        n = 1000003 * 999983
        print(f"{name}: {n} = {factor} * {n // factor}")


if __name__ == "__main__":
    asyncio.run(main())
