"""Fixtures of all tests. Each test prints its result on a line, for the Go test that runs them."""

from __future__ import annotations

import asyncio
import inspect
import os
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an asynchronous test."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**wanted))
    return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Print the result of a test."""
    if "BRIG_REPORT" not in os.environ:
        return
    file, _, rest = report.nodeid.partition("::")
    name = f"{Path(file).stem}.{rest}".replace("/", "_")
    if report.failed:
        print(f"\nFAIL {name}: {report.longreprtext}".replace("\n", "\n     ").replace("\n     FAIL", "\nFAIL"), flush=True)
    elif report.when == "call" and report.passed:
        print(f"\nok {name}", flush=True)


@pytest.fixture
def where() -> str:
    """Return the URL of a Brig server."""
    url = os.environ.get("BRIG_URL", "")
    if not url:
        pytest.skip("there is no server in BRIG_URL")
    return url
