"""Tests without a service: encoding, egress rules, and the generated code."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import struct
from pathlib import Path
from typing import Any

import pytest

import brig
from brig import EgressRule, SandboxSpec, WorkspaceUse
from brig import _documents as d
from brig import _e2b as e2b
from brig import _nouns as n
from brig import _wire as wire
from brig._errors import to_error


def test_sync_is_generated_from_async() -> None:
    found = importlib.util.spec_from_file_location("unasync", Path(__file__).parent.parent / "tools" / "unasync.py")
    assert found is not None and found.loader is not None
    tool = importlib.util.module_from_spec(found)
    found.loader.exec_module(tool)
    assert [f.name for f, text in tool.generated().items() if f.read_text() != text] == []
    assert tool.blocking(
        'async def f():\n    """Say ``await f()``."""\n    async with g() as h:\n        await h.aclose()\n'
    ) == ('def f():\n    """Say ``f()``."""\n    with g() as h:\n        h.close()\n')


@pytest.mark.parametrize(
    ("place", "rule"),
    [
        ("api.example.com", EgressRule(host="api.example.com")),
        ("API.example.com:443", EgressRule(host="api.example.com", ports=(443,))),
        ("*.example.com:80,443", EgressRule(host="*.example.com", ports=(80, 443))),
        ("192.0.2.0/24", EgressRule(cidr="192.0.2.0/24")),
        ("192.0.2.1:22", EgressRule(cidr="192.0.2.1", ports=(22,))),
        ("2001:db8::/32", EgressRule(cidr="2001:db8::/32")),
        ("GET,HEAD api.example.com:443/v1/*", EgressRule("api.example.com", "", (443,), ("GET", "HEAD"), ("/v1/*",))),
        ("api.example.com/v1/*", EgressRule(host="api.example.com", paths=("/v1/*",))),
    ],
)
def test_egress_rule_parse(place: str, rule: EgressRule) -> None:
    assert EgressRule.parse(place) == rule


def test_invalid_port() -> None:
    with pytest.raises(brig.InvalidArgumentError) as e:
        EgressRule.parse("api.example.com:https")
    assert e.value.field == "egress" and e.value.code == "SB010" and e.value.hint


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("data:/data", brig.VolumeMount("data", "/data")),
        ("data:/data:ro", brig.VolumeMount("data", "/data", read_only=True)),
        ("data:/data:rw", brig.VolumeMount("data", "/data")),
    ],
)
def test_volume_mount_parse(text: str, mount: brig.VolumeMount) -> None:
    assert brig.VolumeMount.parse(text) == mount


@pytest.mark.parametrize("text", ["", "data", "data:/data:wr", "data:/a:/b", "data:/a:ro:ro"])
def test_invalid_volume_mount(text: str) -> None:
    with pytest.raises(brig.InvalidArgumentError) as e:
        wire.spec(SandboxSpec("one", volumes=(text,)))
    assert e.value.field == "volumes" and e.value.hint


def test_spec_sends_all_fields() -> None:
    spec = SandboxSpec(
        "one",
        workspace="data",
        secrets=("api-token", brig.SecretUse("other", "OTHER")),
        egress=("api.example.com:443",),
        labels={"agent": "a"},
        ttl=1.5,
        pause_after=1,
        user="root",
        provider="docker",
        disk_mib=64,
        pause_at_end=True,
        cwd="/srv",
        open_files=99,
        output_kib=8,
        bandwidth=1000,
        volumes=("data:/data:ro", brig.VolumeMount("models", "/models")),
    )
    assert wire.spec(spec) == {
        "name": "one",
        "image": "python:3.11-slim",
        "limits": {"memory": "512MiB", "cpus": 1, "disk": "64MiB", "open_files": 99, "output": "8KiB"},
        "labels": {"agent": "a"},
        "ttl_ms": 1500,
        "pause_after_ms": 1000,
        "pause_at_end": True,
        "default_user": "root",
        "default_cwd": "/srv",
        "placement": {"provider": "docker", "only": True},
        "egress": {"rules": [{"host": "api.example.com", "ports": [443]}], "bandwidth": 1000},
        "secrets": [{"name": "api-token"}, {"name": "other", "env": "OTHER"}],
        "workspace": {"name": "data", "mode": "direct"},
        "volumes": [{"name": "data", "path": "/data", "read_only": True}, {"name": "models", "path": "/models"}],
    }
    use = WorkspaceUse("data", "overlay", ("out",), ("/etc",), 3)
    assert wire.spec(SandboxSpec("", image=None, memory_mib=None, cpus=None, workspace=use)) == {
        "workspace": {"name": "data", "mode": "overlay", "prefixes": ["out"], "capture": ["/etc"], "version": 3}
    }


def test_main_program_and_placement() -> None:
    main = brig.MainProgram(("serve",), entrypoint=True, env={"A": "1"}, cwd="/srv", user="root", timeout=1.5)
    bare = {"image": None, "memory_mib": None, "cpus": None}
    assert wire.spec(SandboxSpec("", main=main, **bare)) == {  # type: ignore[arg-type]
        "command": ["serve"],
        "entrypoint": True,
        "command_env": {"A": "1"},
        "cwd": "/srv",
        "user": "root",
        "timeout_ms": 1500,
    }
    assert wire.spec(SandboxSpec("", main=brig.MainProgram(script="a"), **bare)) == {"shell": "a"}  # type: ignore[arg-type]
    near = SandboxSpec("", prefer="region", regions=("eu",), pausable=True, fixed_lease=True, freeze_after=2, **bare)  # type: ignore[arg-type]
    assert wire.spec(near) == {
        "placement": {"prefer": "region", "regions": ["eu"]},
        "pausable": True,
        "fixed_lease": True,
        "freeze_after_ms": 2000,
    }
    e = to_error({"kind": "invalid_argument", "message": "m", "field": "command[0]"}, names=wire.MAIN)
    assert e.field == "main.command[0]"


def test_requests_have_all_fields_of_rest() -> None:
    main = brig.MainProgram(("a",), "a", True, {"A": "1"}, "/", "root", 1)
    fields: dict[str, Any] = {
        **{f.name: "a" for f in dataclasses.fields(SandboxSpec)},
        **dict.fromkeys(("memory_mib", "cpus", "disk_mib", "processes", "open_files", "output_kib", "bandwidth"), 1),
        **{"labels": {"a": "1"}, "env": {"A": "1"}, "require": {"memory": "boundary"}},
        **dict.fromkeys(("pausable", "pause_at_end", "pause_files_only", "fixed_lease"), True),
        **dict.fromkeys(("ttl", "pause_after", "freeze_after"), 1.0),
        **{"main": main, "volumes": ("a:/a",)},
    }
    sent = set(wire.spec(SandboxSpec(**fields))) | set(wire.spec(SandboxSpec(**{**fields, "template": ""})))
    assert sent == set(d.Spec.__annotations__)
    command = n.Command(("a",), "a", 1, {"A": "1"}, "/", "root", "in", True, "tag", brig.Terminal(), True)
    assert set(wire.command(command)) == set(d.ExecRequest.__annotations__) - {"stdin_b64"}
    assert set(wire.process(dataclasses.replace(command, stdin=None))) == set(d.ProcessRequest.__annotations__)
    once = {k: v for k, v in fields.items() if k in n.SpecOptions.__annotations__}
    code = n.Program(SandboxSpec(image="a", **once), "1", "python", (), {"n": 1}, {"a": b""}, 1, "in", 1)
    assert set(wire.program(code)) == set(d.RunRequest.__annotations__) - {"command", "stdin_b64", "step"}


def test_fork_sends_all_fields() -> None:
    assert wire.fork(n.Fork()) == {"count": 1, "paused": False}
    assert wire.fork(n.Fork(labels={}, egress=(), pause_at_end=False, volumes=())) == {
        "count": 1,
        "paused": False,
        "labels": {},
        "egress": {"rules": []},
        "pause_at_end": False,
        "volumes": [],
    }
    full = n.Fork(
        name="base",
        paused=True,
        labels={"try": "a"},
        ttl=1.5,
        env={"A": "1"},
        egress=("api.example.com:443",),
        bandwidth=1000,
        user="root",
        cwd="/srv",
        pause_at_end=True,
        pause_files_only=True,
        memory_mib=256,
        cpus=0.5,
        disk_mib=64,
        processes=9,
        open_files=99,
        output_kib=8,
        volumes=("data:/data",),
    )
    assert wire.fork(full) == {
        "count": 1,
        "name": "base",
        "paused": True,
        "labels": {"try": "a"},
        "ttl_ms": 1500,
        "env": {"A": "1"},
        "egress": {"rules": [{"host": "api.example.com", "ports": [443]}], "bandwidth": 1000},
        "default_user": "root",
        "default_cwd": "/srv",
        "pause_at_end": True,
        "pause_files_only": True,
        "limits": {"memory": "256MiB", "cpus": 0.5, "disk": "64MiB", "processes": 9, "open_files": 99, "output": "8KiB"},
        "volumes": [{"name": "data", "path": "/data"}],
    }
    # The options, the request and the generated type have the same fields.
    assert set(n.ForkOptions.__annotations__) | {"count"} == {f.name for f in dataclasses.fields(n.Fork)}
    assert set(d.ForkRequest.__annotations__) == set(wire.fork(full))


def test_fork_rejects_bandwidth_without_rules() -> None:
    with pytest.raises(brig.InvalidArgumentError) as e:
        wire.fork(n.Fork(bandwidth=1000))
    assert e.value.field == "bandwidth" and "egress" in e.value.hint


def test_empty_stdin_is_sent() -> None:
    assert wire.command(n.Command(("cat",), stdin="")) == {"command": ["cat"], "stdin": ""}
    assert wire.command(n.Command(script="")) == {"shell": ""}
    assert wire.command(n.Command(("cat",), stdin=b"\xff")) == {"command": ["cat"], "stdin_b64": "/w=="}


def test_fields_of_other_calls_are_rejected() -> None:
    for spec in (SandboxSpec("", template="t"), SandboxSpec("", ttl=9), SandboxSpec("", pause_after=9)):
        with pytest.raises(brig.InvalidArgumentError, match="a run has no"):
            wire.program(n.Program(spec, "print(1)", "python"))
    with pytest.raises(brig.InvalidArgumentError, match="no stdin"):
        wire.process(n.Command(("cat",), stdin="a"))
    assert wire.process(n.Command(("cat",), tag="one")) == {"command": ["cat"], "tag": "one"}


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_invalid_timeouts(seconds: float) -> None:
    with pytest.raises(brig.InvalidArgumentError) as e:
        wire.millis(seconds)
    assert e.value.field == "timeout"


def test_lines_in_chunks() -> None:
    text = b'{"a":1}\n\n{"a":"\xc3\xa9"}\n{"a":3}'
    for size in range(1, len(text) + 1):
        lines, out = wire.Lines(), []
        for i in range(0, len(text), size):
            out += lines.feed(text[i : i + size])
        assert out == [{"a": 1}, {"a": "é"}]
        assert lines.feed(b"\n") == [{"a": 3}]


def test_envelopes_in_chunks() -> None:
    end = json.dumps({"error": {"code": "deadline_exceeded", "message": "late"}}).encode()
    text = e2b.envelope({"a": 1}) + e2b.envelope({"a": 2}) + struct.pack(">BI", 2, len(end)) + end
    for size in range(1, len(text) + 1):
        messages, out = e2b.Envelopes(), []
        with pytest.raises(brig.TimedOutError, match="late"):
            for i in range(0, len(text), size):
                out += messages.feed(text[i : i + size])
        assert out == [{"a": 1}, {"a": 2}] or size > len(e2b.envelope({"a": 1}))


@pytest.mark.parametrize(
    ("field", "parameter"),
    [
        ("timeout_ms", "timeout"),
        ("limits.memory", "memory_mib"),
        ("limits.open_files", "open_files"),
        ("limits.output", "output_kib"),
        ("egress.bandwidth", "bandwidth"),
        ("default_user", "user"),
        ("default_cwd", "cwd"),
        ("limits.tomorrow", "limits.tomorrow"),
        ("egress.rules[2].ports", "egress[2].ports"),
        ("command[1]", "cmd[1]"),
        ("placement.provider", "provider"),
        ("placement.regions[0]", "regions[0]"),
        ("placement.prefer", "prefer"),
        ("freeze_after_ms", "freeze_after"),
        ("source_paths[1]", "sources[1]"),
        ("volumes[0].path", "volumes[0].path"),
        ("name", "name"),
        ("capacity", "capacity"),
        ("", ""),
    ],
)
def test_errors_name_parameters(field: str, parameter: str) -> None:
    e = to_error({"kind": "invalid_argument", "code": "SB010", "message": "m", "field": field, "fields": [{"field": field}]})
    assert e.field == parameter and e.fields == ({"field": parameter},)


def test_hints_name_parameters() -> None:
    e = to_error({"kind": "timeout", "message": "m", "hint": "raise timeout_ms or limits.cpus, or give a command or a shell"})
    assert e.hint == "raise timeout or cpus, or give a command or a shell"
    program = wire.program_error({"name": "TimeoutError", "message": "m", "code": "SB005", "hint": "raise timeout_ms"})
    assert program is not None and program.hint == "raise timeout"


def test_errors_keep_all_fields() -> None:
    e = to_error(
        {"kind": "invalid_argument", "code": "SB010", "message": "too much", "field": "limits.memory", "hint": "ask for less"}
    )
    assert isinstance(e, brig.InvalidArgumentError) and isinstance(e, RuntimeError)
    assert str(e) == "memory_mib: too much (SB010)\nhint: ask for less"
    newer = to_error({"kind": "of_tomorrow", "code": "SB099", "message": "m"})
    assert type(newer) is brig.BrigError and newer.kind == "of_tomorrow" and newer.code == "SB099"
    assert wire.refusal(429, b'{"error":{"kind":"rate_limited","code":"SB008","message":"m"}}', "7", "u").retry_after == 7
    for content in (b"", b"<html>", b"[]", b'{"error":1}'):
        assert isinstance(wire.refusal(502, content, None, "http://x"), brig.SandboxUnavailable)
        assert isinstance(e2b.refusal(502, content), brig.SandboxUnavailable)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (SandboxSpec("x", secrets=("a",)), "secrets"),
        (SandboxSpec("x", workspace="data"), "workspace"),
        (SandboxSpec("x", volumes=("data:/data",)), "volumes"),
        (SandboxSpec("x", egress=("a.example:443",)), "egress"),
        (SandboxSpec("x", require={"memory": "boundary"}), "require"),
        (SandboxSpec("x", processes=3), "processes"),
        (SandboxSpec("x", main=brig.MainProgram(("true",))), "main"),
        (SandboxSpec("x", cwd="/srv"), "cwd"),
        (SandboxSpec("x", prefer="cheapest"), "prefer"),
        (SandboxSpec("x", bandwidth=1), "bandwidth"),
    ],
)
def test_e2b_rejects_unsupported_fields(spec: SandboxSpec, field: str) -> None:
    with pytest.raises(brig.UnsupportedError) as e:
        e2b.spec(spec, {})
    assert e.value.field == field and e.value.code == "SB016" and e.value.hint


def test_e2b_templates_of_images() -> None:
    assert e2b.spec(SandboxSpec("x"), {"python:3.11-slim": "base"})["templateID"] == "base"
    assert e2b.spec(SandboxSpec("x", image=None), {})["templateID"] == "base"
    assert e2b.spec(SandboxSpec("x", egress=("a.example",)), {})["network"] == {
        "allowOut": ["a.example"],
        "denyOut": ["0.0.0.0/0"],
    }


def test_e2b_templates_in_the_environment() -> None:
    assert e2b.templates("python:3.11-slim=base, node:20-slim=web,") == {"python:3.11-slim": "base", "node:20-slim": "web"}
    for wrong in ("base", "=base", "python:3.11-slim="):
        with pytest.raises(brig.InvalidArgumentError) as e:
            e2b.templates(wrong)
        assert e.value.field == "BRIG_TEMPLATES"


@pytest.mark.parametrize(
    ("text", "ms"), [("1970-01-01T00:00:01Z", 1000), ("1970-01-01T00:00:00.0125Z", 12), ("1970-01-01T00:00:02.5Z", 2500)]
)
def test_e2b_times(text: str, ms: int) -> None:
    assert e2b.millis(text) == ms


def test_invalid_server() -> None:
    with pytest.raises(brig.InvalidArgumentError) as e:
        brig.SandboxClient("ftp://x")
    assert e.value.field == "where"


def test_everything_public_is_documented() -> None:
    import brig.sync

    for module in (brig, brig.sync):
        for name in module.__all__:
            thing = getattr(module, name)
            assert getattr(thing, "__doc__", None), name
            if isinstance(thing, type):
                for method, f in vars(thing).items():
                    assert method.startswith("_") or not callable(f) or f.__doc__, f"{name}.{method}"
