"""Pause and resume with E2B's Python SDK: the same as pause.mjs, in short."""
import asyncio
import sys
import time
import traceback

from e2b import AsyncSandbox, NotFoundException, Sandbox, SandboxQuery, SandboxState, TimeoutException
from e2b_code_interpreter import Sandbox as Interpreter

failed = 0


def check(f):
    global failed
    try:
        asyncio.run(f()) if asyncio.iscoroutinefunction(f) else f()
        print("ok", f.__name__, flush=True)
    except BaseException:
        failed += 1
        print("FAIL %s: %s" % (f.__name__, traceback.format_exc().replace("\n", "\n     ")), flush=True)


def raises(kind, call, *args, **options):
    try:
        call(*args, **options)
    except kind as err:
        return err
    raise AssertionError("no %s" % kind)


def state(box):
    return Sandbox.get_info(box.sandbox_id).state


def listed(*states):
    query = SandboxQuery(metadata={"suite": "pause-python"}, state=list(states))
    return [s.sandbox_id for s in Sandbox.list(query=query).next_items()]


METADATA = {"suite": "pause-python"}


@check
def pause_and_connect():
    box = Sandbox.create(timeout=600, metadata=METADATA)
    box.files.write("kept.txt", "kept")
    sleep = box.commands.run("sleep 3600", background=True)
    assert box.pause() is True
    assert not box.is_running() and state(box) == SandboxState.PAUSED
    assert box.pause() is False
    assert listed(SandboxState.PAUSED) == [box.sandbox_id] and listed(SandboxState.RUNNING) == []
    again = Sandbox.connect(box.sandbox_id, timeout=300)
    assert state(box) == SandboxState.RUNNING and again.get_info().metadata == METADATA
    assert any(p.pid == sleep.pid for p in again.commands.list())
    assert again.files.read("kept.txt") == "kept"
    assert box.commands.run("cat kept.txt").stdout == "kept"
    again.pause()
    assert Sandbox.kill(box.sandbox_id)
    raises(NotFoundException, Sandbox.connect, box.sandbox_id)


@check
def pause_on_timeout():
    box = Sandbox.create(timeout=3, metadata=METADATA, lifecycle={"on_timeout": "pause"})
    box.files.write("kept.txt", "kept")
    end = time.time() + 60
    while state(box) != SandboxState.PAUSED:
        assert time.time() < end, "it does not pause"
        time.sleep(0.05)
    raises(TimeoutException, box.commands.run, "true")
    assert Sandbox.connect(box.sandbox_id, timeout=600).files.read("kept.txt") == "kept"
    box.kill()


@check
async def traffic_resumes():
    box = await AsyncSandbox.create(timeout=600, metadata=METADATA, lifecycle={"on_timeout": "pause", "auto_resume": True})
    assert await box.pause()
    results = await asyncio.gather(*[box.commands.run("echo %d" % i) for i in range(10)])
    assert [r.stdout for r in results] == ["%d\n" % i for i in range(10)]
    assert (await box.get_info()).state == SandboxState.RUNNING
    await box.kill()


@check
def code_keeps_its_variables():
    box = Interpreter.create(timeout=600, metadata=METADATA)
    box.run_code("x = 41")
    box.pause()
    Interpreter.connect(box.sandbox_id)
    assert box.run_code("x + 1").text == "42"
    box.kill()


sys.exit(1 if failed else 0)
