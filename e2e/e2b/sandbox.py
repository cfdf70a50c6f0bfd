"""E2B's Python SDK: the same as sandbox.mjs and code.mjs, in short, blocking and
not. Says how each check went, a line each, for e2b_test.go."""
import asyncio
import os
import pathlib
import sys
import threading
import time
import traceback
import urllib.request

from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileType,
    NotFoundException,
    Sandbox,
    TimeoutException,
)
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


def eventually(f, what, seconds=30):
    end = time.time() + seconds
    while not f():
        assert time.time() < end, what
        time.sleep(0.02)


box = Sandbox.create(timeout=600, metadata={"suite": "python"}, envs={"GLOBAL": "g"})


@check
def create():
    assert box.is_running()
    info = box.get_info()
    assert info.metadata == {"suite": "python"} and info.sandbox_id == box.sandbox_id


@check
def commands():
    r = box.commands.run("echo hi; echo oops >&2; echo $GLOBAL $MINE", envs={"MINE": "m"})
    assert (r.stdout, r.stderr, r.exit_code) == ("hi\ng m\n", "oops\n", 0), r
    assert raises(CommandExitException, box.commands.run, "exit 3").exit_code == 3
    raises(TimeoutException, box.commands.run, "sleep 20", timeout=1)
    assert box.commands.run("whoami; pwd", user="root").stdout == "root\n/root\n"


@check
def other_users():
    assert "invalid username" in str(raises(Exception, box.commands.run, "true", user="alice"))
    raises(Exception, box.files.read, "f", user="alice")
    box.commands.run("echo 'alice:x:1234:1235::/tmp/alice:/bin/sh' >> /etc/passwd", user="root")
    box.files.make_dir("/tmp/alice", user="alice")
    r = box.commands.run("id -u; id -g; echo $HOME $USER; pwd; echo one > f; chmod 600 f", user="alice")
    assert r.stdout == "1234\n1235\n/tmp/alice alice\n/tmp/alice\n", r
    assert box.files.read("f", user="alice") == "one\n"
    raises(Exception, box.files.read, "/tmp/alice/f")
    assert box.files.get_info("f", user="alice").owner == "alice"
    r = box.commands.run("id -u; pwd", user="daemon")
    assert r.stdout == "1\n/usr/sbin\n", r


@check
def relative():
    box.files.write("by_api", "from the API")
    r = box.commands.run("cat by_api; echo -n from a command > by_command; pwd")
    assert r.stdout == "from the API/home/user\n", r
    assert box.files.read("by_command") == "from a command"
    assert {e.path for e in box.files.list(".")} >= {"/home/user/by_api", "/home/user/by_command"}


@check
def python_by_name():
    for user in ("user", "root"):
        script = "printf '#!/usr/bin/env python\\nprint(6*7)\\n' >~/p; chmod +x ~/p; ~/p; python -c 'print(6*7)'"
        r = box.commands.run(script, user=user)
        assert r.stdout == "42\n42\n", r


@check
def background():
    cmd = box.commands.run("cat; echo end", background=True, stdin=True)
    box.commands.send_stdin(cmd.pid, "typed\n")
    assert any(p.pid == cmd.pid for p in box.commands.list())
    box.commands.close_stdin(cmd.pid)
    assert cmd.wait().stdout == "typed\nend\n"
    sleep = box.commands.run("sleep 1000", background=True)
    assert sleep.kill()
    ended = time.monotonic() + 30  # a signal is sent, and the process ends a little later
    while box.commands.kill(sleep.pid):
        assert time.monotonic() < ended, "a killed command can be killed again"
        time.sleep(0.05)
    out = []
    cmd = box.commands.run("for i in 1 2 3; do echo $i; sleep 0.2; done", background=True)
    cmd.wait(on_stdout=out.append)
    assert "".join(out) == "1\n2\n3\n"


@check
def files():
    assert box.files.write("a.txt", "grün").path == "/home/user/a.txt"
    assert box.files.read("a.txt") == "grün"
    assert bytes(box.files.read("a.txt", format="bytes")) == "grün".encode()
    assert b"".join(box.files.read("a.txt", format="stream")) == "grün".encode()
    assert [i.path for i in box.files.write_files([{"path": "d/1", "data": "1"}, {"path": "d/2", "data": b"2"}])] == ["/home/user/d/1", "/home/user/d/2"]
    assert [(e.name, e.type) for e in box.files.list("d")] == [("1", FileType.FILE), ("2", FileType.FILE)]
    assert box.files.make_dir("e") and not box.files.make_dir("e")
    assert box.files.rename("d/1", "e/one").path == "/home/user/e/one"
    assert box.files.exists("e/one") and not box.files.exists("d/1")
    info = box.files.get_info("e/one")
    assert (info.size, info.owner, info.permissions) == (1, "user", "-rw-r--r--"), info
    box.files.remove("d")
    assert not box.files.exists("d")
    raises(NotFoundException, box.files.read, "missing")


@check
def watch():
    box.files.make_dir("watched")
    handle = box.files.watch_dir("watched")
    box.files.write("watched/new", "x")
    seen = []
    eventually(lambda: seen.extend(handle.get_new_events()) or any(e.type.value == "write" for e in seen), "a new file is seen")
    handle.stop()
    assert [(e.name, e.type.value) for e in seen] == [("new", "create"), ("new", "chmod"), ("new", "write")], seen


@check
def attributes():
    box.files.write("labelled", "x")
    box.commands.run("python3 -c \"import os; os.setxattr('labelled', 'user.e2b.author', b'me')\"")
    assert box.files.get_info("labelled").metadata == {"author": "me"}


@check
def urls():
    box.files.write("signed", "by url")
    with urllib.request.urlopen(box.download_url("signed")) as r:
        assert r.read() == b"by url"


@check
def terminal():
    shell = box.pty.create(size=__import__("e2b").PtySize(rows=24, cols=80))
    box.pty.send_stdin(shell.pid, b"echo so$((40+2)); exit\n")
    out = bytearray()
    raised = shell.wait(on_pty=out.extend)
    assert b"so42" in out and raised.exit_code == 0


@check
def listing():
    page = Sandbox.list(query=__import__("e2b").SandboxQuery(metadata={"suite": "python"})).next_items()
    assert [s.sandbox_id for s in page] == [box.sandbox_id]


@check
async def not_blocking():
    other = await AsyncSandbox.connect(box.sandbox_id)
    results = await asyncio.gather(*[other.commands.run("echo %d" % i) for i in range(20)])
    assert [r.stdout for r in results] == ["%d\n" % i for i in range(20)]
    events = []
    handle = await other.files.watch_dir("watched", on_event=events.append)
    await other.files.write("watched/again", "x")
    for _ in range(1500):
        if any(e.name == "again" for e in events):
            break
        await asyncio.sleep(0.02)
    else:
        raise AssertionError("a new file is not seen")
    await handle.stop()


@check
def interpreter():
    with Interpreter.create(timeout=300) as sbx:
        assert sbx.run_code("x = 41; x + 1").text == "42"
        out = []
        r = sbx.run_code("print('a'); 1/0", on_stdout=lambda m: out.append(m.line))
        assert r.error.name == "ZeroDivisionError" and "".join(out) == "a\n", (r, out)
        progress = "h = display('0', display_id=True)\nfor i in range(50): h.update(i)"
        assert len(sbx.run_code(progress).results) == 1
        ctx = sbx.create_code_context(cwd="/tmp")
        assert sbx.run_code("import os; os.getcwd()", context=ctx).text == "/tmp"
        ctx = sbx.create_code_context(cwd="/home/user/not/there")
        assert (ctx.cwd, sbx.run_code("import os; os.getcwd()", context=ctx).text) == ("/home/user/not/there",) * 2
        frame = sbx.run_code("import pandas as pd; pd.DataFrame({'a': [1, 2]})").results[0]
        assert frame.data == {"a": [1, 2]} and "<table" in frame.html
        plot = sbx.run_code("import matplotlib.pyplot as plt; plt.plot([1, 2], [3, 4]); plt.show()").results[-1]
        assert plot.png and plot.chart.type.value == "line", plot.chart


@check
def ended_interpreter():
    # A sandbox that ends while code runs is an error, and no result.
    code = "print('begun', flush=True)\nimport time\ntime.sleep(300)"
    sbx = Interpreter.create(timeout=300)
    out = []

    def kill_when_begun(message):
        out.append(message.line)
        threading.Thread(target=sbx.kill).start()

    err = raises(TimeoutException, sbx.run_code, code, on_stdout=kill_when_begun)
    assert "killed" in str(err) and out == ["begun\n"], (err, out)
    sbx = Interpreter.create(timeout=300)
    err = raises(TimeoutException, sbx.run_code, code, on_stdout=lambda _: sbx.set_timeout(0))
    assert "killed" in str(err), err


@check
def pillow():
    # The package from the index, installed by a command.
    wheel = next(pathlib.Path(os.environ["PILLOW"]).glob("*.whl"))
    with Interpreter.create(timeout=300) as sbx:
        sbx.files.write(wheel.name, wheel.read_bytes())
        sbx.commands.run("pip install -q --no-index --force-reinstall ./" + wheel.name, timeout=120)
        r = sbx.run_code("import PIL\nfrom PIL import Image\ni = Image.new('RGB', (4, 4))\ni.save('x.png')\nPIL.__version__")
        assert wheel.name.split("-")[1] in r.text, (r, wheel)
        shown = [x for x in r.results if x.png]
        assert len(r.results) == 2 and len(shown) == 1 and r.results[0] is shown[0], r
        assert sbx.files.read("x.png", format="bytes")[:4] == b"\x89PNG"
        assert sbx.commands.run("python -c \"from PIL import Image; print(Image.open('x.png').size)\"").stdout == "(4, 4)\n"
        assert len(sbx.run_code("i.show()").results) == 1
        assert not sbx.run_code("import io; i.save(io.BytesIO(), 'PNG')").results


@check
def end():
    assert box.kill() and not box.is_running() and not box.kill()


sys.exit(1 if failed else 0)
