"""Builds of templates with E2B's Python SDK. Prints the result of each check on a line, for
e2b_template_test.go."""
import asyncio
import os
import pathlib
import sys
import time
import traceback

from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    BuildException,
    Sandbox,
    SandboxException,
    Template,
    wait_for_file,
    wait_for_timeout,
)

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


# The context of COPY.
context = pathlib.Path(os.environ["CONTEXT"])
os.chdir(context)
(context / "folder").mkdir()
(context / "folder" / "a.txt").write_text("a\n")
(context / "folder" / "b c.txt").write_text("b\n")
(context / "folder" / "link").symlink_to("a.txt")
(context / "one.sh").write_text("#!/bin/sh\necho one\n")


@check
def build_and_use():
    logs = []
    template = (
        Template(file_context_path=context)
        .from_base_image()
        .copy("folder/*.txt", "copied")
        .copy("folder", "/srv/tree", user="root")
        .copy("one.sh", "/opt/bin/one", user="root", mode=0o755)
        .set_envs({"ONE": "1", "TWO": "$ONE-2"})
        .run_cmd("cat copied/a.txt; whoami; echo $TWO")
        .run_cmd("echo made > /etc/made && chown 1000:1000 /etc/made", user="root")
        .set_user("worker")
        .set_workdir("/app")
        .run_cmd("id -un > who; pwd >> who")
    )
    info = Template.build(template, "web:v1", tags=["stable"], cpu_count=1, memory_mb=512, on_build_logs=lambda e: logs.append(e.message))
    assert info.template_id and info.build_id and set(info.tags) == {"v1", "stable"}, info
    assert {"a", "user", "1-2"} <= set(logs), logs
    for name in ("web:v1", "web:stable", info.template_id + ":v1"):
        box = Sandbox.create(name, timeout=60, envs={"THREE": "3"})
        try:
            out = box.commands.run(
                "cat /app/who; id -un; pwd; echo $ONE $TWO $THREE; cat /etc/made; stat -c %u /etc/made; /opt/bin/one; "
                "cat /home/user/copied/'b c.txt'; readlink /srv/tree/link; stat -c %U:%a /srv/tree/a.txt; ls -d /var/tmp/brig* 2>/dev/null"
                "; grep CapEff /proc/self/status",
                user="worker",
            ).stdout.split("\n")
            want = ["worker", "/app", "worker", "/app", "1 1-2 3", "made", "1000", "one", "b", "a.txt"]
            assert out[: len(want)] == want, out
            assert "CapEff:\t0000000000000000" in out and not any("brig-copy" in line for line in out), out
            root = box.commands.run("grep CapEff /proc/self/status; awk '/MemTotal/ {print ($2 <= 524288)}' /proc/meminfo", user="root").stdout.split()
            assert root[1:] == ["0000000000000000", "1"], root
        finally:
            box.kill()


@check
def start_command_runs_already():
    template = (
        Template()
        .from_template("web:v1")
        .set_start_cmd("echo $TWO > /tmp/started; exec sleep 4242", wait_for_file("/tmp/started"))
    )
    Template.build(template, "server", cpu_count=1, memory_mb=512)
    boxes = [Sandbox.create("server", timeout=60) for _ in range(2)]
    try:
        for box in boxes:
            assert box.commands.run("cat /tmp/started; pgrep -x sleep | wc -l; cat /app/who").stdout.split() == ["1-2", "1", "worker", "/app"]
    finally:
        for box in boxes:
            box.kill()


@check
def failures_name_the_step():
    base = Template().from_base_image()
    for build, want in (
        (base.run_cmd("true").run_cmd("echo broken >&2; exit 3"), "exit status 3"),
        (Template().from_base_image().run_cmd("whoami", user="root123"), "failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'"),
        (Template().from_base_image().set_user("; exit 1"), "invalid username"),
        (Template().from_base_image().set_workdir("/etc/passwd"), "exit status"),
        (Template().from_template("no-such-template"), "not found"),
        (Template().from_image("registry.invalid/nothing:latest"), ""),
        (Template().from_base_image().set_start_cmd("./no/such/file", wait_for_timeout(5000)), "no/such/file"),
    ):
        err = raises(BuildException, Template.build, build, "broken", cpu_count=1, memory_mb=512)
        assert want in str(err), (want, err)
    assert "404" in str(raises(SandboxException, Sandbox.create, "broken"))


@check
def background():
    info = Template.build_in_background(Template().from_base_image().run_cmd("sleep 3"), "slow", cpu_count=1, memory_mb=512)
    assert Template.get_build_status(info).status.value == "building"
    end = time.time() + 60
    while Template.get_build_status(info).status.value == "building":
        assert time.time() < end
        time.sleep(0.1)
    assert Template.get_build_status(info).status.value == "ready"


@check
def tags_and_removal():
    assert Template.exists("web") and not Template.exists("no-such-template")
    tags = Template.assign_tags("web:v1", ["production", "latest"])
    assert tags.build_id and set(tags.tags) == {"production", "latest"}
    assert {t.tag for t in Template.get_tags("web")} == {"v1", "stable", "production", "latest"}
    Template.remove_tags("web", ["stable", "latest"])
    assert {t.tag for t in Template.get_tags("web")} == {"v1", "production"}
    assert "404" in str(raises(SandboxException, Sandbox.create, "web:stable"))
    for tag in (":bad", "web:"):
        raises(Exception, Template.assign_tags, "web:v1", tag)
    Sandbox.create("web:production", timeout=60).kill()


@check
def known_steps_are_not_repeated():
    def when(template, **options):
        Template.build(template, "cached", cpu_count=1, memory_mb=512, **options)
        box = Sandbox.create("cached", timeout=60)
        try:
            return box.commands.run("cat ~/when; echo $LATER").stdout.split("\n")[:2]
        finally:
            box.kill()

    def steps():
        return Template().from_base_image().run_cmd("date +%s%N > when")

    first, _ = when(steps())
    assert when(steps())[0] == first
    assert when(steps().set_envs({"LATER": "yes"})) == [first, "yes"]
    assert when(steps(), skip_cache=True)[0] != first
    assert when(Template().from_base_image().skip_cache().run_cmd("date +%s%N > when"))[0] != first


@check
async def rebuild_replaces():
    template = AsyncTemplate().from_base_image().run_cmd("echo second > /home/user/version")
    first = await AsyncTemplate.build(AsyncTemplate().from_base_image().run_cmd("echo first > /home/user/version"), "twice", cpu_count=1, memory_mb=512)
    old = await AsyncSandbox.create("twice", timeout=60)
    second = await AsyncTemplate.build(template, "twice", cpu_count=1, memory_mb=512)
    assert first.template_id == second.template_id and first.build_id != second.build_id
    new = await AsyncSandbox.create("twice", timeout=60)
    try:
        assert (await old.files.read("/home/user/version")) == "first\n"
        assert (await new.files.read("/home/user/version")) == "second\n"
    finally:
        await old.kill()
        await new.kill()


sys.exit(failed > 0)
