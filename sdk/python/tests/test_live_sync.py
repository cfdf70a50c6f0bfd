# Generated from tests/test_live_async.py by tools/unasync.py. Edit that file.
"""Calls to a Brig server. The blocking test is generated from this one."""

from __future__ import annotations

import uuid
from contextlib import closing

import pytest

import brig
from brig.sync import MainProgram, SandboxClient, SandboxSpec, Terminal, WorkspaceUse

SERVER = """
import socketserver

class Upper(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())

with socketserver.TCPServer(("127.0.0.1", 8123), Upper) as server:
    server.serve_forever()
"""


def spec(**fields: object) -> SandboxSpec:
    return SandboxSpec(**{"name": f"t-{uuid.uuid4().hex[:8]}", "image": None, **fields})  # type: ignore[arg-type]


def test_commands(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec(env={"GLOBAL": "g"})) as sandbox:
        r = sandbox.exec("/bin/echo", ["$HOME;x"])
        assert (r.stdout, r.stderr, r.exit_code, r.ok) == ("$HOME;x\n", "", 0, True)
        r = sandbox.shell("echo a | tr a b; echo $GLOBAL $MINE >&2; pwd; exit 3", env={"MINE": "m"}, cwd="/tmp")
        assert (r.stdout, r.stderr, r.exit_code, r.ok) == ("b\n/tmp\n", "g m\n", 3, False)
        assert r.output == "b\n/tmp\ng m\n" and r.id and 0 < r.duration < 30
        assert (sandbox.exec("cat", stdin="é")).stdout == "é"
        assert (sandbox.exec("od", ["-An", "-tx1"], stdin=b"\xff\x00")).stdout.split() == ["ff", "00"]
        assert (sandbox.exec("id", ["-un"], user="root")).stdout == "root\n"
        r = sandbox.shell("echo begun; sleep 60", timeout=0.5)
        assert (r.stdout, r.exit_code, r.timed_out) == ("begun\n", 124, True)
        r = sandbox.shell("kill -9 $$")
        assert (r.exit_code, r.signal) == (137, "SIGKILL")
        assert (sandbox.shell("head -c 3000000 /dev/zero | tr '\\0' x")).truncated


def test_streams(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec()) as sandbox:
        with sandbox.stream("sh", ["-c", "echo one; sleep 0.2; echo two >&2; printf '\\377'; exit 4"]) as output:
            with pytest.raises(brig.FailedPreconditionError):
                _ = output.result
            got = {"stdout": b"", "stderr": b""}
            for chunk in output:
                got[chunk.stream] += chunk.data
        assert got == {"stdout": b"one\n\xff", "stderr": b"two\n"}
        assert (output.result.exit_code, output.result.stdout) == (4, "one\n�")
        # Leaving the block early ends the command.
        with sandbox.stream_shell("echo begun; exec sleep 1234") as output:
            for chunk in output:
                assert chunk.text == "begun\n"
                break
        assert (sandbox.shell("for i in $(seq 100); do pgrep -f 'sleep 123[4]' || exit 0; sleep 0.05; done; exit 1")).ok
        with pytest.raises(brig.NotFoundError):
            with SandboxClient(where) as other, (other.get("no-such")).stream("true") as output:
                pass


def test_life(where: str) -> None:
    with SandboxClient(where) as client:
        s = spec(labels={"suite": uuid.uuid4().hex}, memory_mib=256, ttl=60)
        sandbox = client.create(s)
        with pytest.raises(brig.AlreadyExistsError) as taken:
            client.create(s)
        assert taken.value.code == "SB014" and taken.value.status == 409
        info = sandbox.info()
        assert (info.name, info.state, info.memory_mib, info.cpus, info.labels) == (s.name, "running", 256, 1, s.labels)
        assert client.list(labels=s.labels) == [s.name]
        assert client.list(labels={"suite": "other"}) == []
        assert ((client.get(s.name)).exec("echo", ["hi"])).stdout == "hi\n"
        assert (sandbox.extend(600)).expires > info.expires
        assert sandbox.logs() == "hi\n"
        with closing(sandbox.follow_logs(tail=1)) as log:
            for text in log:
                assert text == "hi\n"
                break
        sandbox.shell("echo 1; echo 2")
        assert sandbox.logs(tail=1) == "2\n"
        sandbox.stop()
        whole = ""
        for text in sandbox.follow_logs():  # it ends with the sandbox
            whole += text
        assert whole == "hi\n1\n2\n"
        assert (sandbox.info()).state == "stopped"
        assert client.list(labels=s.labels, state="running") == []
        with pytest.raises(brig.FailedPreconditionError) as ended:
            sandbox.exec("true")
        assert ended.value.code == "SB015" and ended.value.hint
        assert sandbox.logs(tail=1) == "2\n"
        sandbox.kill()
        client.remove(s.name)
        with pytest.raises(brig.NotFoundError):
            client.get(s.name)


def test_main_program(where: str) -> None:
    with SandboxClient(where) as client:
        script = "echo main $ONE; id -un; pwd; until [ -e end ]; do sleep 0.5; done"
        main = MainProgram(script=script, env={"ONE": "1"}, user="root", cwd="/tmp")
        s = spec(main=main, env={"ALL": "a"}, cwd="/srv", fixed_lease=True, pausable=True, ttl=60, open_files=99, output_kib=8)
        with client.create(s) as sandbox:
            text = ""
            for piece in sandbox.follow_logs():  # until the program ends, and the sandbox with it
                text += piece
                if text.endswith("/tmp\n"):
                    assert (sandbox.shell("pwd; echo $ALL$ONE >&2")).stderr == "a\n"
                    sandbox.files.write("/tmp/end", "")
            assert text == "main 1\nroot\n/tmp\n/srv\na\n"
            assert (sandbox.logs(tail=1, times=True)).startswith("20")
            info = sandbox.info()
            assert (info.state, info.exit_code, info.exit_reason) == ("stopped", 0, "exited")
            assert info.raw["fixed_lease"] and info.raw["pausable"]
            assert (info.raw["limits"]["open_files"], info.raw["limits"]["output"]) == (99, 8192)
        main = MainProgram(("sleep", "60"), timeout=1)
        with client.create(spec(main=main)) as sandbox:
            for _ in sandbox.follow_logs():
                pass
            assert (sandbox.info()).exit_code == 124
        for field, wrong in [
            ("main.user", {"main": MainProgram(("true",), user="no such user")}),
            ("main.cwd", {"main": MainProgram(("true",), cwd="relative")}),
            ("main.timeout", {"main": MainProgram(("true",), timeout=10**9)}),
            ("main.env", {"main": MainProgram(("true",), env={"A=B": ""})}),
            ("user", {"user": "no such user"}),
            ("cwd", {"cwd": "relative"}),
            ("freeze_after", {"freeze_after": 10**9}),
            ("prefer", {"prefer": "region"}),
        ]:
            with pytest.raises(brig.InvalidArgumentError) as e:
                client.create(spec(**wrong))  # type: ignore[arg-type]
            assert e.value.field == field, e.value


def test_measurements(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec()) as sandbox:
        usage = sandbox.usage()
        assert usage.memory > 0 and usage.cpu > 0 and usage.at
        verified = sandbox.attest()
        assert verified.name == sandbox.name and verified.enforcement["memory"]["at"]


def test_fork(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec(labels={"suite": uuid.uuid4().hex})) as sandbox:
        sandbox.shell("echo kept > /workspace/a")
        copies = sandbox.fork(2, labels={"try": "a"}, ttl=60)
        assert len(copies) == 2
        for copied in copies:
            with copied:
                assert (copied.shell("cat /workspace/a; hostname")).stdout == f"kept\n{copied.name}\n"
                info = copied.info()
                assert (info.labels, info.origin) == ({"try": "a"}, (sandbox.info()).id)
        assert (sandbox.shell("cat /workspace/a")).stdout == "kept\n"
        name = sandbox.name[:40] + "-base"
        (base,) = sandbox.fork(name=name, paused=True)
        with base:
            assert base.name == name and (base.info()).state == "paused"
            (copied,) = base.fork()
            with copied:
                assert (copied.shell("cat /workspace/a")).stdout == "kept\n"
            assert (base.info()).state == "paused"


def test_fork_with_changes(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec(env={"A": "1", "B": "1"})) as sandbox:
        rules = ("api.example.com:443",)
        (copied,) = sandbox.fork(
            env={"B": "2"},
            egress=rules,
            bandwidth=1 << 20,
            user="root",
            cwd="/etc",
            pause_at_end=True,
            pause_files_only=True,
        )
        with copied:
            assert (copied.shell('echo "$A $B"; id -un; pwd')).stdout == "1 2\nroot\n/etc\n"
            raw = (copied.info()).raw
            assert raw["egress"] == {"bandwidth": 1 << 20, "rules": [{"host": "api.example.com", "ports": [443]}]}
            assert raw["pause_at_end"] and raw["pause_files_only"]
        assert (sandbox.shell('echo "$A $B"; id -un; pwd')).stdout == "1 1\nuser\n/workspace\n"
        wrong: list[tuple[str, brig.ForkOptions]] = [
            ("env", {"env": {"A=B": ""}}),
            ("user", {"user": "no such user"}),
            ("cwd", {"cwd": "relative"}),
            ("egress[0]", {"egress": (brig.EgressRule("a.example", cidr="192.0.2.0/24"),)}),
            ("bandwidth", {"egress": (), "bandwidth": -1}),
            ("pause_files_only", {"pause_files_only": True}),
            ("ttl", {"ttl": 10**9}),
            ("memory_mib", {"memory_mib": 256}),
            ("output_kib", {"output_kib": 8}),
        ]
        for field, options in wrong:
            with pytest.raises(brig.InvalidArgumentError) as e:
                sandbox.fork(**options)
            assert e.value.field == field
        sandbox.pause(files_only=True)
        (copied,) = sandbox.fork(memory_mib=256)
        with copied:
            assert (copied.info()).memory_mib == 256


def test_pause(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec()) as sandbox:
        sandbox.shell("echo kept > /workspace/a; echo lost > /tmp/b")
        for files_only, tmp in ((False, "lost\n"), (True, "")):
            assert (sandbox.pause(files_only=files_only)).state == "paused"
            assert (sandbox.shell("cat /workspace/a; cat /tmp/b || true")).stdout == "kept\n" + tmp
        sandbox.pause(files_only=True)
        assert (sandbox.resume()).state == "running"


def test_one_shots(where: str) -> None:
    with SandboxClient(where) as client:
        before = client.list()
        r = client.run_python("print(6 * 7)", image=None)
        assert (r.stdout, r.exit_code, r.error) == ("42\n", 0, None) and r.sandbox.startswith("py-")
        r = client.run_shell("echo out; echo err >&2; exit 5", image=None)
        assert (r.stdout, r.stderr, r.exit_code) == ("out\n", "err\n", 5) and r.sandbox.startswith("sh-")
        code = (
            "import os\ndef main(a, b=None):\n"
            " os.mkdir('artifacts'); open('artifacts/x.png', 'wb').write(b'\\xff')\n return [a, b, open('in').read()]"
        )
        r = client.run(code, arguments={"a": {"é": True}}, files={"in": b"given"})
        assert r.has_value and r.value == [{"é": True}, None, "given"]
        assert [(a.path, a.content) for a in r.artifacts] == [("x.png", b"\xff")]
        r = client.run("throw new TypeError('no')", language="javascript")
        assert r.error is not None and r.error.name == "TypeError" and r.error.message == "no" and not r.ok
        r = client.run("while True: pass", timeout=0.5)
        assert r.timed_out and r.exit_code == 124 and r.error is not None and r.error.code == "SB005"
        r = client.run("x = bytearray(10**9)", memory_mib=64)
        assert r.oom_killed and r.error is not None and r.error.code == "SB006"
        r = client.run_command("cat", stdin="typed")
        assert r.stdout == "typed"
        with pytest.raises(brig.InvalidArgumentError) as wrong:
            client.run_python("1", image="no-such-image:1")
        assert wrong.value.field == "image" and wrong.value.hint
        assert sorted(client.list()) == sorted(before)


def test_streams_of_one_shots(where: str) -> None:
    with SandboxClient(where) as client:
        code = "import time\ndef main(n):\n print('a', flush=True); time.sleep(0.5); print('b'); return n * 7"
        with client.stream(code, arguments={"n": 6}) as output:
            got = [chunk.text for chunk in output]
        assert got[0] == "a\n" and "".join(got) == "a\nb\n"
        assert (output.result.value, output.result.stdout) == (42, "a\nb\n")
        with client.stream_command("cat", ["in"], files={"in": b"given"}, user="root") as output:
            assert [chunk.text for chunk in output] == ["given"]
        with pytest.raises(brig.InvalidArgumentError) as wrong:
            with client.stream("1", image="no-such-image:1") as output:
                for _ in output:
                    pass
        assert wrong.value.field == "image"


def test_runs(where: str) -> None:
    with SandboxClient(where) as client:
        name = f"r-{uuid.uuid4().hex[:8]}"
        code = "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: print('ends', flush=True))\ntime.sleep(60)"
        r = client.run(code, name=name, timeout=1, grace=0.5)
        assert r.timed_out and "ends" in r.stdout
        kept = client.get_run(name)
        assert (kept.stdout, kept.timed_out, kept.sandbox) == (r.stdout, True, name)
        (run,) = [s for s in client.runs(status="timeout") if s.sandbox == name]
        assert (run.status, run.exit_code, run.error and run.error.code) == ("timeout", 124, "SB005")
        assert name not in [s.sandbox for s in client.runs(status="success")]


def test_contexts(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec()) as sandbox:
        assert (sandbox.run_code("import math; r = 2")).text == ""
        result = sandbox.run_code("print('p'); math.pi * r ** 2")
        assert (result.text, result.stdout, result.execution_count, result.ok) == ("12.566370614359172", "p\n", 2, True)
        with sandbox.create_context("python", env={"X": "1"}) as context:
            assert (context.run("import os; os.environ['X']")).text == "'1'"
            failed = context.run("1 / 0")
            assert failed.error is not None and failed.error.name == "ZeroDivisionError" and not failed.ok
            assert "1 / 0" in failed.error.traceback
            late = context.run("import time; kept = 1; time.sleep(60)", timeout=0.5)
            assert late.timed_out and not late.lost
            assert (context.run("kept")).text == "1"
            context.restart()
            gone = context.run("kept")
            assert gone.error is not None and gone.error.name == "NameError"
        with pytest.raises(brig.NotFoundError):
            context.run("1")
        shown = (sandbox.run_code("class A:\n def _repr_html_(self): return '<b>'\nA()")).results[0]
        assert shown.data["text/html"] == "<b>" and shown.main
        code = "display('one', display_id='d', metadata={'k': 1}); display('two', display_id='d', update=True)"
        shown = (sandbox.run_code(code)).results[0]
        assert (shown.data["text/plain"], shown.display_id, shown.metadata) == ("'two'", "d", {})


def test_lists_and_streams_of_contexts(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec()) as sandbox:
        with sandbox.stream_code("print('p'); display('shown'); 6 * 7") as output:
            got = [item.text if isinstance(item, brig.Chunk) else item.data["text/plain"] for item in output]
        assert (got, output.result.text) == (["p\n", "'shown'", "42"], "42")
        with sandbox.stream_code("kept = 1; print('begun', flush=True); import time; time.sleep(60)") as output:
            for _ in output:
                break
        assert (sandbox.run_code("kept", timeout=30)).text == "1"
        context = sandbox.create_context(cwd="/tmp")
        (info,) = [c for c in sandbox.contexts() if c.id == context.id]
        assert (info.language, info.cwd, info.state, info.execution_count) == ("python", "/tmp", "idle", 0)
        context.run("x = 1")
        with sandbox.context(context.id).stream("print(x)") as output:
            assert [item.text for item in output if isinstance(item, brig.Chunk)] == ["1\n"]


def test_volumes(where: str) -> None:
    with SandboxClient(where) as client:
        name = f"v-{uuid.uuid4().hex[:8]}"
        made = client.create_volume(name, size_mib=32)
        assert (made.name, made.size) == (name, 32 << 20) and made.id and made.created.startswith("20")
        got = client.get_volume(made.id)
        assert got.name == name and 0 < got.used < got.size
        assert name in [v.name for v in client.volumes()]
        with pytest.raises(brig.AlreadyExistsError) as taken:
            client.create_volume(name)
        assert taken.value.field == "name"
        with pytest.raises(brig.InvalidArgumentError) as small:
            client.create_volume("small", size_mib=1)
        assert small.value.field == "size_mib"

        files = client.volume_files(name)
        wrote = files.write("/a b/ü.txt", "hällo", force=True, mode=0o600, uid=1001, gid=1002)
        assert (wrote.name, wrote.path, wrote.type, wrote.size) == ("ü.txt", "/a b/ü.txt", "file", 6)
        assert (wrote.mode, wrote.uid, wrote.gid) == (0o600, 1001, 1002) and wrote.modified.startswith("20")
        assert files.read("a b/ü.txt") == "hällo".encode()
        assert files.read_text("/a b/ü.txt") == "hällo"
        data = bytes(range(256)) * 4000
        files.write("bytes", data)
        with closing(files.stream("bytes")) as pieces:
            assert b"".join([piece for piece in pieces]) == data
        with closing(files.stream("bytes")) as pieces:
            for piece in pieces:  # leaving it early ends the download
                assert data.startswith(piece)
                break
        assert (files.write("/copy", files.stream("bytes"))).size == len(data)
        with pytest.raises(brig.AlreadyExistsError):
            files.write("bytes", "other")
        files.write("bytes", b"", force=True)
        assert files.read("bytes") == b""
        with pytest.raises(brig.NotFoundError):
            files.write("/no/parent", "")

        folder = files.mkdir("/d", mode=0o700, uid=7)
        assert (folder.type, folder.mode, folder.uid, folder.gid) == ("directory", 0o700, 7, 1000)
        assert (files.mkdir("/d/e/f", force=True)).path == "/d/e/f"
        with pytest.raises(brig.AlreadyExistsError):
            files.mkdir("/d")
        assert (files.set_attributes("/d", mode=0o755, gid=8)).gid == 8
        stat = files.stat("/d")
        assert (stat.mode, stat.uid, stat.gid) == (0o755, 7, 8)
        assert [f.path for f in files.list()] == ["/a b", "/bytes", "/copy", "/d"]
        assert [f.path for f in files.list("/d", depth=2)] == ["/d/e", "/d/e/f"]
        files.remove("/d")
        with pytest.raises(brig.NotFoundError):
            files.stat("/d")
        with pytest.raises(brig.NotFoundError):
            with closing(files.stream("/none")) as pieces:
                for _ in pieces:
                    pass
        with pytest.raises(brig.InvalidArgumentError) as wrong:
            files.write("/x", "", mode=0o10000)
        assert wrong.value.field == "mode"
        client.remove_volume(name)
        with pytest.raises(brig.NotFoundError):
            client.get_volume(name)


def test_mounts_of_volumes(where: str) -> None:
    with SandboxClient(where) as client:
        name = f"v-{uuid.uuid4().hex[:8]}"
        client.create_volume(name, size_mib=32)
        with (
            client.create(spec(volumes=[f"{name}:/data"], pausable=True)) as one,
            client.create(spec(volumes=[brig.VolumeMount(name, "/mnt/in", read_only=True)])) as two,
        ):
            one.shell("echo from one > /data/a")
            assert (two.shell("cat /mnt/in/a; touch /mnt/in/b || echo kept")).stdout == "from one\nkept\n"
            assert client.volume_files(name).read("/a") == b"from one\n"
            client.volume_files(name).write("/b", "from the client")
            assert one.files.read_text("/data/b") == "from the client"
            (copied,) = one.fork()
            with copied:
                assert (copied.shell("cat /data/b")).stdout == "from the client"
            with pytest.raises(brig.InvalidArgumentError) as other:
                one.fork(volumes=())
            assert other.value.field == "volumes"
            one.pause(files_only=True)
            (copied,) = one.fork(volumes=[f"{name}:/elsewhere:ro"])
            with copied:
                assert (copied.shell("cat /elsewhere/b; ls /data")).stdout == "from the client"
            run = client.run("open('/data/c', 'w').write('from a run')", volumes=[f"{name}:/data"])
            assert run.error is None and two.files.read_text("/mnt/in/c") == "from a run"
        for field, volumes in [
            ("volumes[0].name", ["no-volume:/data"]),
            ("volumes[1].path", [f"{name}:/data", f"{name}:/proc/x"]),
            ("volumes", ["data"]),
        ]:
            with pytest.raises(brig.InvalidArgumentError) as wrong:
                client.create(spec(volumes=volumes))
            assert wrong.value.field == field
            with pytest.raises(brig.InvalidArgumentError) as wrong:
                client.run("1", volumes=volumes)
            assert wrong.value.field == field
        client.remove_volume(name)


def test_files(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec()) as sandbox:
        files = sandbox.files
        wrote = files.write("/workspace/a b/ü.txt", "hällo", mode=0o600)
        assert (wrote.path, wrote.size, wrote.mode, wrote.type) == ("/workspace/a b/ü.txt", 6, 0o600, "file")
        assert files.read_text("/workspace/a b/ü.txt") == "hällo"
        assert files.read("a b/ü.txt", offset=3, length=2) == b"ll"
        with files.watch("/workspace", recursive=True) as changes:
            files.write("/workspace/part", "ö")
            for change in changes:
                if change.name == "part" and "write" in change.kinds:
                    break
        files.write("/workspace/rest", "\n")
        assert (files.compose(["part", "rest"], "joined")).size == 3
        assert (files.stat("joined")).modified.startswith("20")
        files.remove("joined")
        files.write("/workspace/empty", b"")
        assert files.read("/workspace/empty") == b""
        assert (files.mkdir("/workspace/d/e")).type == "directory"
        assert (files.move("/workspace/empty", "/workspace/d/moved")).name == "moved"
        assert (files.mkdir("/srv/a", user="root")).owner == "root"
        assert (files.move("/srv/a", "/srv/b", user="root")).path == "/srv/b"
        assert sorted(f.path for f in files.list("/workspace", depth=2)) == [
            "/workspace/a b",
            "/workspace/a b/ü.txt",
            "/workspace/d",
            "/workspace/d/e",
            "/workspace/d/moved",
        ]
        files.remove("/workspace/d")
        with pytest.raises(brig.NotFoundError):
            files.stat("/workspace/d")
        with pytest.raises(brig.NotFoundError):
            files.read("/workspace/d/moved")


def test_processes_and_ports(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec()) as sandbox:
        process = sandbox.start("sh", ["-c", "read line; echo got $line; exit 6"])
        process.write("hello\n")
        ended = process.wait()
        assert ended.exit_code == 6
        with process.output() as output:
            assert b"".join([chunk.data for chunk in output]) == b"got hello\n"
        with sandbox.process(process.pid).output(offset=4) as output:
            assert [chunk.text for chunk in output] == ["hello\n"]
        script = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.1; done"
        process = sandbox.start_shell(script, tag="screen", terminal=Terminal(80, 24))
        with process.output() as output:
            text = ""
            for chunk in output:
                if "up" not in text and "up" in text + chunk.text:
                    process.resize(100, 40)
                text += chunk.text
        assert "40 100" in text
        ended = (sandbox.start("cat", no_input=True)).wait()
        assert ended.exit_code == 0
        tags = {p.pid: (p.tag, p.running, p.result is not None) for p in sandbox.processes()}
        assert tags[process.pid] == ("screen", False, True)
        r = sandbox.exec("echo", ["hi"], survive=True)
        kept = sandbox.get_exec(r.id)
        assert (kept.stdout, kept.command, kept.done) == ("hi\n", ("echo", "hi"), True)
        assert r.id in [e.id for e in sandbox.execs()]
        process = sandbox.start("python3", ["-c", SERVER])
        sandbox.shell("for i in $(seq 200); do grep -q :1FBB /proc/net/tcp && exit; sleep 0.05; done")
        with sandbox.connect(8123) as connection:
            connection.write(b"hello\n", timeout=10)
            got = b""
            while piece := connection.read(timeout=10):
                got += piece
            assert got == b"HELLO\n"
        process.kill()
        assert (process.wait()).signal == "SIGKILL"
        with pytest.raises(brig.SandboxUnavailable):
            sandbox.connect(8123)


def test_workspaces_and_secrets(where: str) -> None:
    with SandboxClient(where) as client:
        name = f"w-{uuid.uuid4().hex[:8]}"
        client.create_workspace(name)
        assert name in [w.name for w in client.workspaces()]
        with client.create(spec(workspace=WorkspaceUse(name, "overlay"))) as sandbox:
            sandbox.shell("echo one > kept.txt")
            commit = sandbox.commit()
            assert (commit.version, commit.changed) == (1, ("kept.txt",))
        assert client.read_workspace_file(name, "/workspace/kept.txt") == b"one\n"
        use = WorkspaceUse(name, capture=("/home",))
        r = client.run_shell("cat kept.txt; echo two > kept.txt; echo out > ~/side", image=None, workspace=use)
        assert r.stdout == "one\n" and [(f.path, f.size) for f in r.files] == [("/home/user/side", 4)]
        assert client.read_workspace_file(name, "/workspace/kept.txt") == b"two\n"
        assert [v.number for v in client.workspace_versions(name)] in ([1, 2], [2, 1])
        assert [(f.path, f.size) for f in client.workspace_files(name, version=1)] == [("/workspace/kept.txt", 4)]
        assert client.workspace_files(name, "/none") == []
        (change,) = client.diff_workspace(name, 1, 2)
        assert (change.path, change.kind) == ("kept.txt", "changed")
        with pytest.raises(brig.BrigError) as wrong:
            client.diff_workspace(name, 1, -2)
        assert wrong.value.field == "new"
        restored = client.restore_workspace(name, 1)
        assert (restored.number, restored.restored) == (3, 1)
        assert client.read_workspace_file(name, "/workspace/kept.txt") == b"one\n"
        client.remove_workspace(name)
        with pytest.raises(brig.BrigError) as gone:
            client.create(spec(workspace=name))
        assert gone.value.field.startswith("workspace") or isinstance(gone.value, brig.NotFoundError)

        secret = f"s-{uuid.uuid4().hex[:8]}"
        put = client.put_secret(secret, "swordfish-é")
        assert (put.name, put.version, put.hosts) == (secret, 1, ())
        variable = brig.SecretUse(secret, "TOKEN")
        with client.create(spec(secrets=(variable,))) as sandbox:
            assert (sandbox.shell('echo "$TOKEN"')).stdout == "swordfish-é\n"
            assert (sandbox.shell('printf %s "$TOKEN" | wc -c')).stdout.strip() == "12"
        client.remove_secret(secret)
        assert secret not in [s.name for s in client.secrets()]


def test_images_and_templates(where: str) -> None:
    with SandboxClient(where) as client:
        assert "host" in [name for image in client.images() for name in image.names]
        assert [t.name for t in client.templates()] == [t.raw["name"] for t in client.templates()]
        with pytest.raises(brig.InvalidArgumentError) as wrong:
            client.pull_image("a/b:1", platform="no such platform")
        assert wrong.value.field == "platform"


def test_egress_rules(where: str) -> None:
    with SandboxClient(where) as client, client.create(spec(egress=("api.example.com:443",))) as sandbox:
        rules = (sandbox.info()).raw["egress"]["rules"]
        assert rules == [{"host": "api.example.com", "ports": [443]}]
        sandbox.set_egress(("api.example.com",), bandwidth=1 << 20)
        sandbox.set_egress(())
        assert (sandbox.info()).raw["egress"] == {"rules": [], "bandwidth": 1 << 20}


def test_errors(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with SandboxClient(where) as client:
        with pytest.raises(brig.InvalidArgumentError) as wrong:
            client.create(spec(memory_mib=1))
        assert wrong.value.field == "memory_mib" and wrong.value.status == 400 and wrong.value.hint
    monkeypatch.delenv("BRIG_API_KEY")
    for key in ("brig_no", None):
        with SandboxClient(where, key=key) as client:
            with pytest.raises(brig.AuthenticationError) as no:
                client.list()
            assert no.value.code == "SB011"
    with SandboxClient("http://127.0.0.1:1") as client:
        with pytest.raises(brig.SandboxUnavailable) as nobody:
            client.list()
        assert nobody.value.code == "SB003" and "brig serve" in nobody.value.hint
