"""Conversion between Python objects and bodies of Brig's REST API, without a connection."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast
from urllib.parse import quote

from . import _nouns as n
from ._errors import BrigError, InvalidArgumentError, SandboxUnavailable, in_python, to_error

Body = dict[str, Any]
NDJSON = "application/x-ndjson"


def path(*parts: str | int) -> str:
    """Return a path below ``/v1``. Each part is one segment."""
    return "/v1/" + "/".join(quote(str(p), safe="") for p in parts)


def _some(**fields: Any) -> Body:
    """Return the fields that are set."""
    return {k: v for k, v in fields.items() if v is not None and v != "" and v != () and v != {}}


def _reject(what: str, hint: str, **fields: object) -> None:
    """Reject the first field that is set, and that a call does not have."""
    for field, value in fields.items():
        if value:
            raise InvalidArgumentError(f"{what} has no {field}", field=field, hint=hint)


def millis(seconds: float | None, field: str = "timeout") -> int | None:
    """Convert seconds to milliseconds."""
    if seconds is None:
        return None
    if not 0 < seconds < float("inf"):
        raise InvalidArgumentError(
            f"{seconds} is not a positive, finite number of seconds", field=field, hint="give seconds, for example 30"
        )
    return max(1, round(seconds * 1000))


def egress(rules: Sequence[str | n.EgressRule]) -> Body:
    """Encode egress rules."""
    out = []
    for rule in rules:
        r = n.EgressRule.parse(rule) if isinstance(rule, str) else rule
        out.append(
            _some(
                host=r.host,
                cidr=r.cidr,
                ports=list(r.ports) or None,
                methods=list(r.methods) or None,
                paths=list(r.paths) or None,
                deny=r.deny or None,
            )
        )
    return {"rules": out}


def spec(s: n.SandboxSpec) -> Body:
    """Encode the specification of a sandbox."""
    use = n.WorkspaceUse(s.workspace) if isinstance(s.workspace, str) else s.workspace
    limits = _some(
        memory=f"{s.memory_mib}MiB" if s.memory_mib is not None else None,
        cpus=s.cpus,
        disk=f"{s.disk_mib}MiB" if s.disk_mib is not None else None,
        processes=s.processes,
    )
    secrets = [n.SecretUse(u) if isinstance(u, str) else u for u in s.secrets]
    return _some(
        name=s.name,
        image=None if s.template else s.image,
        template=s.template,
        limits=limits,
        labels=dict(s.labels),
        env=dict(s.env),
        ttl_ms=millis(s.ttl, "ttl"),
        pause_after_ms=millis(s.pause_after, "pause_after"),
        pause_files_only=s.pause_files_only or None,
        default_user=s.user,
        require=dict(s.require),
        placement={"provider": s.provider, "only": True} if s.provider else None,
        egress=egress(s.egress) if s.egress else None,
        secrets=[_some(name=u.name, env=u.env) for u in secrets] or None,
        workspace=use
        and _some(
            name=use.name,
            mode=use.mode,
            prefixes=list(use.prefixes) or None,
            capture=list(use.capture) or None,
            version=use.version or None,
        ),
    )


def _stdin(stdin: str | bytes | None) -> Body:
    if isinstance(stdin, bytes):
        return {"stdin_b64": base64.b64encode(stdin).decode()}
    return {} if stdin is None else {"stdin": stdin}


def command(c: n.Command) -> Body:
    """Encode a command."""
    body = _some(
        command=list(c.argv) or None,
        timeout_ms=millis(c.timeout),
        env=dict(c.env),
        cwd=c.cwd,
        user=c.user,
    )
    if c.script is not None:
        body["shell"] = c.script
    return body | _stdin(c.stdin)


def process(c: n.Command, tag: str) -> Body:
    """Encode a command that runs in the background. Its input is written later."""
    _reject("a background process", "write to its standard input when it runs", stdin=c.stdin)
    return command(c) | _some(tag=tag)


def program(p: n.Program) -> Body:
    """Encode a one-shot run."""
    s = p.spec
    _reject(
        "a run",
        "create a sandbox, and execute the program in it",
        template=s.template,
        ttl=s.ttl,
        pause_after=s.pause_after,
        pause_files_only=s.pause_files_only,
    )
    body = spec(s)
    if "default_user" in body:
        body["user"] = body.pop("default_user")
    if p.code is not None:
        body |= {"language": p.language, "code": p.code}
    else:
        body["command"] = list(p.argv)
    if p.arguments is not None:
        body["arguments"] = dict(p.arguments)
    if p.files:
        body["files"] = [
            {"path": path, "content": c} if isinstance(c, str) else {"path": path, "content_b64": base64.b64encode(c).decode()}
            for path, c in p.files.items()
        ]
    return body | _some(timeout_ms=millis(p.timeout)) | _stdin(p.stdin)


def _captured(commit: Mapping[str, Any] | None) -> tuple[n.WorkspaceFile, ...]:
    return tuple(
        n.WorkspaceFile(f["path"], f["type"], f["mode"], f["size"], f.get("target", ""))
        for f in (commit or {}).get("captured") or ()
    )


def _ended(b: Body) -> Body:
    """Decode the fields that all results have."""
    return {
        "stdout": b["stdout"],
        "stderr": b["stderr"],
        "exit_code": b["exit_code"],
        "truncated": b["truncated"],
        "signal": b.get("signal", ""),
        "timed_out": b["timed_out"],
        "oom_killed": b["oom_killed"],
        "sandbox_ended": b.get("sandbox_ended", ""),
        "duration": b["duration_ms"] / 1000,
        "id": b.get("exec", ""),
    }


def result(b: Body) -> n.ExecResult:
    """Decode the result of a command."""
    return n.ExecResult(**_ended(b))


def program_error(b: Mapping[str, Any] | None) -> n.ProgramError | None:
    """Decode the error of a program, or the exception of a cell."""
    if not b:
        return None
    message = b["message"] if "message" in b else b.get("value", "")
    return n.ProgramError(b["name"], message, b.get("traceback", ""), b.get("code", ""), in_python(b.get("hint", "")))


def run_result(b: Body) -> n.RunResult:
    """Decode the result of a one-shot run."""
    return n.RunResult(
        **_ended(b),
        files=_captured(b.get("workspace")),
        value=b["result"],
        has_value=b["has_result"],
        artifacts=tuple(n.Artifact(a["path"], base64.b64decode(a["content_b64"]), a["mime_type"]) for a in b["artifacts"]),
        artifacts_skipped=tuple(b.get("artifacts_skipped") or ()),
        error=program_error(b["error"]),
        sandbox=b["sandbox"],
        provider=(b.get("route") or {}).get("provider", ""),
    )


def code_result(b: Body) -> n.CodeResult:
    """Decode the result of a cell."""
    return n.CodeResult(
        text=b["text"],
        stdout=b["stdout"],
        stderr=b["stderr"],
        results=tuple(n.Rich(r["data"], bool(r.get("main"))) for r in b["results"]),
        error=program_error(b["error"]),
        execution_count=b["execution_count"],
        context_id=b["context_id"],
        timed_out=b["timed_out"],
        lost=b["lost"],
        oom_killed=b.get("oom_killed", False),
        sandbox_ended=b.get("sandbox_ended", ""),
    )


def sandbox(b: Body) -> n.SandboxInfo:
    """Decode a sandbox."""
    limits = b.get("limits") or {}
    return n.SandboxInfo(
        name=b.get("name") or b["id"],
        id=b["id"],
        state=cast(n.State, b["state"]),
        image=b.get("image", ""),
        provider=b["provider"],
        labels=b.get("labels") or {},
        memory_mib=int(limits.get("memory", 0)) >> 20,
        cpus=limits.get("cpus", 0),
        expires=b.get("expires", ""),
        raw=b,
    )


def entry(b: Body) -> n.FileInfo:
    """Decode the properties of a file."""
    return n.FileInfo(b["name"], b["path"], b["type"], b["size"], b["mode"], b["owner"], b.get("target", ""))


def workspace(b: Body) -> n.WorkspaceInfo:
    """Decode a workspace."""
    head = b.get("head") or {}
    return n.WorkspaceInfo(b["name"], head.get("number", 0), head.get("files", 0), head.get("size", 0))


def commit(b: Body) -> n.WorkspaceCommit:
    """Decode the result of a commit."""
    return n.WorkspaceCommit((b.get("version") or {}).get("number", 0), tuple(c["path"] for c in b["changes"]))


def secret(b: Body) -> n.SecretInfo:
    """Decode a secret, which has no value."""
    return n.SecretInfo(b["name"], b["version"], tuple(b["hosts"]))


def secret_value(value: str | bytes, hosts: Sequence[str]) -> Body:
    """Encode the value and the hosts of a secret. Without hosts, an existing secret keeps its own."""
    body: Body = {"hosts": list(hosts)} if hosts else {}
    if isinstance(value, bytes):
        return body | {"value_b64": base64.b64encode(value).decode()}
    return body | {"value": value}


def chunk(stream: Literal["stdout", "stderr"], b: Body) -> n.Chunk:
    """Decode a chunk of output."""
    return n.Chunk(stream, base64.b64decode(b["data_b64"]) if "data_b64" in b else b.get("data", "").encode())


def refusal(status: int, content: bytes, retry_after: str | None, url: str) -> BrigError:
    """Decode an error response."""
    try:
        error = json.loads(content)["error"]
        return to_error(error, status=status, retry_after=float(retry_after) if retry_after and retry_after.isdigit() else None)
    except (ValueError, KeyError, TypeError, AttributeError):
        return SandboxUnavailable(
            f"the response is not from a Brig server (HTTP {status})", hint=f"check that brig serve runs at {url}", status=status
        )


class Lines:
    """Splits chunks of bytes into lines of JSON."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Body]:
        """Add a chunk, and return the lines that it completes."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in whole if line.strip()]
