"""Retries of rejected calls. The blocking test is generated from this one."""

from __future__ import annotations

import json

import httpx
import pytest

from brig import RateLimitedError, SandboxClient

KEY = "brig_0123456789012345678901234567890123456789"


class Busy:
    """A server that rejects the first calls."""

    def __init__(self, refusals: int, field: str, retry_after: str = "0.01") -> None:
        self.refusals, self.field, self.retry_after, self.calls = refusals, field, retry_after, 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.calls += 1
        if self.calls <= self.refusals:
            error = {"kind": "rate_limited", "code": "SB008", "message": "no room", "field": self.field}
            return httpx.Response(429, headers={"Retry-After": self.retry_after}, content=json.dumps({"error": error}))
        return httpx.Response(204)


async def remove(busy: Busy, patience: float) -> None:
    http = httpx.AsyncClient(transport=httpx.MockTransport(busy))
    async with http, SandboxClient("http://127.0.0.1:1", key=KEY, http=http, patience=patience) as client:
        await client.remove("box")


async def test_retry_at_capacity() -> None:
    busy = Busy(1, "capacity", "1")
    await remove(busy, 30)
    assert busy.calls == 2


@pytest.mark.parametrize(
    ("field", "retry_after", "patience"),
    [("capacity", "1", 0.0), ("capacity", "1", 0.5), ("capacity", "0", 30.0), ("executions", "1", 30.0)],
)
async def test_no_retry(field: str, retry_after: str, patience: float) -> None:
    busy = Busy(1, field, retry_after)
    with pytest.raises(RateLimitedError):
        await remove(busy, patience)
    assert busy.calls == 1
