"""Parallel exploration: several candidates, each in a sandbox of its own, and who
is first ends the others.

    python explore.py
"""

import asyncio

from brig import SandboxClient

NUMBER = 1000003 * 999983

# What a model has thought of: one that is wrong, one that is quick, one that
# would take for ever, and one that is too greedy.
CANDIDATES = {
    "guess": "def main(n):\n    assert n % 7 == 0\n    return 7\n",
    "fermat": """
from math import isqrt
def main(n):
    a = isqrt(n) + 1
    while isqrt(a * a - n) ** 2 != a * a - n:
        a += 1
    return a - isqrt(a * a - n)
""",
    "patience": "def main(n):\n    while True: pass\n",
    "greed": "def main(n):\n    return [n] * 10**9\n",
}


async def explore(client: SandboxClient, n: int) -> tuple[str, int]:
    async def candidate(name: str, code: str) -> tuple[str, int]:
        result = await client.run(code, arguments={"n": n}, timeout=120, memory_mib=128)
        if result.error or not isinstance(result.value, int):
            raise ValueError(f"{name}: {result.error.name if result.error else 'no value'}")
        return name, result.value

    tasks = {asyncio.create_task(candidate(*c)) for c in CANDIDATES.items()}
    try:
        for task in asyncio.as_completed(tasks):
            try:
                return await task
            except ValueError as error:
                print(f"gave up: {error}")
        raise RuntimeError("nobody found it")
    finally:
        # A call that is cancelled ends its program.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def main() -> None:
    async with SandboxClient() as client:
        name, factor = await explore(client, NUMBER)
        print(f"{name}: {NUMBER} = {factor} * {NUMBER // factor}")


if __name__ == "__main__":
    asyncio.run(main())
