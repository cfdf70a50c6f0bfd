"""Conversion between Python objects and bodies of Brig's REST API, without a connection."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast
from urllib.parse import quote

from . import _nouns as n
from ._errors import BrigError, InvalidArgumentError, SandboxUnavailable, in_python, to_error

if TYPE_CHECKING:  # only type checkers need the documents
    from . import _documents as d

Body = dict[str, Any]
_Document = TypeVar("_Document", bound=Mapping[str, object])
NDJSON = "application/x-ndjson"


def path(*parts: str | int) -> str:
    """Return a path below ``/v1``. Each part is one segment."""
    return "/v1/" + "/".join(quote(str(p), safe="") for p in parts)


def _some(document: _Document) -> _Document:
    """Return a document without its empty fields."""
    return cast(_Document, {k: v for k, v in document.items() if v is not None and v is not False and v not in ("", [], {})})


#: Fields of a sandbox's specification that belong to its main program.
MAIN = {
    "command": "main.command",
    "shell": "main.script",
    "entrypoint": "main.entrypoint",
    "command_env": "main.env",
    "cwd": "main.cwd",
    "user": "main.user",
    "timeout_ms": "main.timeout",
}


def _reject(what: str, hint: str, **fields: object) -> None:
    """Reject the first field that is set, and that a call does not have."""
    for field, value in fields.items():
        if value:
            raise InvalidArgumentError(f"{what} has no {field}", field=field, hint=hint)


def millis(seconds: float, field: str = "timeout") -> int:
    """Convert seconds to milliseconds."""
    if not 0 < seconds < float("inf"):
        raise InvalidArgumentError(
            f"{seconds} is not a positive, finite number of seconds", field=field, hint="give seconds, for example 30"
        )
    return max(1, round(seconds * 1000))


def egress(rules: Sequence[str | n.EgressRule], bandwidth: int | None = None) -> d.EgressRequest:
    """Encode egress rules and the bandwidth."""
    out: list[d.EgressRule] = []
    for rule in rules:
        r = n.EgressRule.parse(rule) if isinstance(rule, str) else rule
        encoded: d.EgressRule = {
            "host": r.host,
            "cidr": r.cidr,
            "ports": list(r.ports),
            "methods": list(r.methods),
            "paths": list(r.paths),
            "deny": r.deny,
        }
        out.append(_some(encoded))
    return {"rules": out} if bandwidth is None else {"rules": out, "bandwidth": bandwidth}


def _limits(s: n.SandboxSpec | n.Fork) -> d.LimitsRequest:
    limits: d.LimitsRequest = {}
    if s.memory_mib is not None:
        limits["memory"] = f"{s.memory_mib}MiB"
    if s.cpus is not None:
        limits["cpus"] = s.cpus
    if s.disk_mib is not None:
        limits["disk"] = f"{s.disk_mib}MiB"
    if s.processes is not None:
        limits["processes"] = s.processes
    if s.open_files is not None:
        limits["open_files"] = s.open_files
    if s.output_kib is not None:
        limits["output"] = f"{s.output_kib}KiB"
    return limits


def _secrets(s: n.SandboxSpec) -> list[d.SecretUse]:
    out: list[d.SecretUse] = []
    for use in s.secrets:
        u = n.SecretUse(use) if isinstance(use, str) else use
        encoded: d.SecretUse = {"name": u.name, "env": u.env}
        out.append(_some(encoded))
    return out


def _workspace(w: str | n.WorkspaceUse) -> d.WorkspaceUse:
    use = n.WorkspaceUse(w) if isinstance(w, str) else w
    encoded: d.WorkspaceUse = {
        "name": use.name,
        "mode": use.mode,
        "prefixes": list(use.prefixes),
        "capture": list(use.capture),
    }
    if use.version:
        encoded["version"] = use.version
    return _some(encoded)


def _volumes(mounts: Sequence[str | n.VolumeMount]) -> list[d.VolumeMount]:
    out: list[d.VolumeMount] = []
    for mount in mounts:
        m = n.VolumeMount.parse(mount) if isinstance(mount, str) else mount
        encoded: d.VolumeMount = {"name": m.name, "path": m.path}
        if m.read_only:
            encoded["read_only"] = True
        out.append(encoded)
    return out


def _placement(s: n.SandboxSpec) -> d.Placement:
    fields: d.Placement = {"provider": s.provider, "only": bool(s.provider), "regions": list(s.regions)}
    if s.prefer:
        fields["prefer"] = s.prefer
    return _some(fields)


def _main(body: d.Spec, m: n.MainProgram) -> None:
    fields: d.Spec = {
        "command": list(m.command),
        "shell": m.script,
        "entrypoint": m.entrypoint,
        "command_env": dict(m.env),
        "cwd": m.cwd,
        "user": m.user,
    }
    if m.timeout is not None:
        fields["timeout_ms"] = millis(m.timeout, "main.timeout")
    body.update(_some(fields))


def spec(s: n.SandboxSpec) -> d.Spec:
    """Encode the specification of a sandbox."""
    body: d.Spec = {
        "name": s.name,
        "template": s.template,
        "limits": _limits(s),
        "labels": dict(s.labels),
        "env": dict(s.env),
        "pause_at_end": s.pause_at_end,
        "pause_files_only": s.pause_files_only,
        "default_user": s.user,
        "default_cwd": s.cwd,
        "pausable": s.pausable,
        "fixed_lease": s.fixed_lease,
        "placement": _placement(s),
        "require": dict(s.require),
        "secrets": _secrets(s),
        "volumes": _volumes(s.volumes),
    }
    if s.image is not None and not s.template:
        body["image"] = s.image
    if s.ttl is not None:
        body["ttl_ms"] = millis(s.ttl, "ttl")
    if s.pause_after is not None:
        body["pause_after_ms"] = millis(s.pause_after, "pause_after")
    if s.freeze_after is not None:
        body["freeze_after_ms"] = millis(s.freeze_after, "freeze_after")
    if s.main is not None:
        _main(body, s.main)
    if s.egress or s.bandwidth is not None:
        body["egress"] = egress(s.egress, s.bandwidth)
    if s.workspace is not None:
        body["workspace"] = _workspace(s.workspace)
    return _some(body)


def fork(f: n.Fork) -> d.ForkRequest:
    """Encode a request for copies."""
    if f.bandwidth is not None and f.egress is None:
        # The server replaces the rules and the bandwidth together, so it would remove all rules.
        raise InvalidArgumentError(
            "a fork replaces the bandwidth only with the rules", field="bandwidth", hint="give egress, too"
        )
    fields: d.ForkRequest = {
        "name": f.name,
        "env": dict(f.env),
        "limits": _limits(f),
        "pause_files_only": f.pause_files_only,
        "default_user": f.user,
        "default_cwd": f.cwd,
    }
    body = _some(fields)
    body["count"], body["paused"] = f.count, f.paused
    if f.labels is not None:
        body["labels"] = dict(f.labels)
    if f.ttl is not None:
        body["ttl_ms"] = millis(f.ttl, "ttl")
    if f.egress is not None:
        body["egress"] = egress(f.egress, f.bandwidth)
    if f.pause_at_end is not None:
        body["pause_at_end"] = f.pause_at_end
    if f.volumes is not None:
        body["volumes"] = _volumes(f.volumes)
    return body


def _stdin(body: d.ExecRequest | d.RunRequest, stdin: str | bytes | None) -> None:
    if isinstance(stdin, bytes):
        body["stdin_b64"] = base64.b64encode(stdin).decode()
    elif stdin is not None:
        body["stdin"] = stdin


def command(c: n.Command) -> d.ExecRequest:
    """Encode a command."""
    fields: d.ExecRequest = {"command": list(c.argv), "env": dict(c.env), "cwd": c.cwd, "user": c.user}
    body = _some(fields)
    if c.timeout is not None:
        body["timeout_ms"] = millis(c.timeout)
    if c.script is not None:
        body["shell"] = c.script
    if c.survive:
        body["survive"] = True
    _stdin(body, c.stdin)
    return body


def process(c: n.Command) -> d.ProcessRequest:
    """Encode a command that runs in the background. Its input is written later."""
    _reject("a background process", "write to its standard input when it runs", stdin=c.stdin)
    fields: d.ProcessRequest = {
        "command": list(c.argv),
        "env": dict(c.env),
        "cwd": c.cwd,
        "user": c.user,
        "tag": c.tag,
        "no_input": c.no_input,
    }
    body = _some(fields)
    if c.timeout is not None:
        body["timeout_ms"] = millis(c.timeout)
    if c.script is not None:
        body["shell"] = c.script
    if c.terminal is not None:
        body["terminal"] = terminal(c.terminal)
    return body


def terminal(t: n.Terminal) -> d.Terminal:
    """Encode the size of a terminal."""
    return {"columns": t.columns, "rows": t.rows}


def code(code: str, language: str, context: str, timeout: float | None, env: Mapping[str, str]) -> d.CodeRequest:
    """Encode code for a context, or for the default context of a language."""
    body: d.CodeRequest = {"code": code, "env": dict(env)}
    if context:
        body["context_id"] = context
    else:
        body["language"] = language
    if timeout is not None:
        body["timeout_ms"] = millis(timeout)
    return body


def _file(path: str, content: str | bytes) -> d.File:
    if isinstance(content, str):
        return {"path": path, "content": content}
    return {"path": path, "content_b64": base64.b64encode(content).decode()}


def program(p: n.Program) -> d.RunRequest:
    """Encode a one-shot run."""
    s = p.spec
    _reject(
        "a run",
        "create a sandbox, and execute the program in it",
        template=s.template,
        ttl=s.ttl,
        pause_after=s.pause_after,
        pause_files_only=s.pause_files_only,
        pause_at_end=s.pause_at_end,
        cwd=s.cwd,
        main=s.main,
        pausable=s.pausable,
        fixed_lease=s.fixed_lease,
        freeze_after=s.freeze_after,
    )
    fields: d.RunRequest = {
        "name": s.name,
        "limits": _limits(s),
        "labels": dict(s.labels),
        "env": dict(s.env),
        "user": s.user,
        "placement": _placement(s),
        "require": dict(s.require),
        "secrets": _secrets(s),
        "volumes": _volumes(s.volumes),
        "files": [_file(path, content) for path, content in p.files.items()],
    }
    body = _some(fields)
    if s.image:
        body["image"] = s.image
    if s.egress or s.bandwidth is not None:
        body["egress"] = egress(s.egress, s.bandwidth)
    if s.workspace is not None:
        body["workspace"] = _workspace(s.workspace)
    if p.code is not None:
        body["language"], body["code"] = cast(Any, p.language), p.code
    else:
        body["command"] = list(p.argv)
    if p.arguments is not None:
        body["arguments"] = dict(p.arguments)
    if p.timeout is not None:
        body["timeout_ms"] = millis(p.timeout)
    if p.grace is not None:
        body["grace_ms"] = millis(p.grace, "grace")
    _stdin(body, p.stdin)
    return body


def workspace_file(f: d.WorkspaceFile) -> n.WorkspaceFile:
    """Decode a file or link in a version of a workspace."""
    return n.WorkspaceFile(f["path"], f["type"], f["mode"], f["size"], f.get("target", ""))


def _captured(commit: d.WorkspaceCommit | None) -> tuple[n.WorkspaceFile, ...]:
    return tuple(map(workspace_file, (commit.get("captured") if commit else None) or ()))


def _ended(b: d.Result | d.Execution) -> Body:
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


def result(b: d.Result) -> n.ExecResult:
    """Decode the result of a command."""
    return n.ExecResult(**_ended(b))


def execution(b: d.Execution) -> n.Execution:
    """Decode a command with its result so far."""
    return n.Execution(
        **_ended(b),
        command=tuple(b.get("command") or ()),
        script=b.get("shell", ""),
        cwd=b.get("cwd", ""),
        user=b.get("user", ""),
        done=b["done"],
        started=b["started"],
    )


def process_info(b: d.Process) -> n.ProcessInfo:
    """Decode a process in the background."""
    return n.ProcessInfo(
        pid=b["pid"],
        running=b["running"],
        command=tuple(b.get("command") or ()),
        script=b.get("shell", ""),
        tag=b.get("tag", ""),
        started=b["started"],
        result=result(b["result"]) if "result" in b else None,
    )


def context(b: d.Context) -> n.ContextInfo:
    """Decode a context."""
    return n.ContextInfo(b["id"], b["language"], b["state"], b["cwd"], b["version"], b["execution_count"])


def usage(b: d.SandboxUsage) -> n.SandboxUsage:
    """Decode what a sandbox uses."""
    return n.SandboxUsage(b["at"], b["cpu_ms"] / 1000, b["memory"], b["cache"], b["sent"], b["received"], b.get("disk"))


def run_summary(b: d.RunSummary) -> n.RunSummary:
    """Decode a run in a list."""
    return n.RunSummary(
        sandbox=b["sandbox"],
        status=b["status"],
        exit_code=b["exit_code"],
        started=b["started"],
        duration=b["duration_ms"] / 1000,
        signal=b.get("signal", ""),
        image=b.get("image", ""),
        provider=b.get("provider", ""),
        error=program_error(b.get("error")),
    )


def program_error(b: d.ProgramError | None) -> n.ProgramError | None:
    """Decode the error of a program."""
    if not b:
        return None
    return n.ProgramError(b["name"], b["message"], b.get("traceback", ""), b.get("code", ""), in_python(b.get("hint", "")))


def exception(b: d.Exception | None) -> n.ProgramError | None:
    """Decode the exception of a cell."""
    return n.ProgramError(b["name"], b["value"], b["traceback"]) if b else None


def run_result(b: d.RunAnswer) -> n.RunResult:
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
        provider=b["route"]["provider"] if "route" in b else "",
    )


def rich(b: d.Rich) -> n.Rich:
    """Decode a displayed value."""
    return n.Rich(b["data"], bool(b.get("main")), b.get("metadata") or {}, b.get("display_id", ""), b.get("update", False))


def code_result(b: d.CodeAnswer) -> n.CodeResult:
    """Decode the result of a cell."""
    return n.CodeResult(
        text=b["text"],
        stdout=b["stdout"],
        stderr=b["stderr"],
        results=tuple(map(rich, b["results"])),
        error=exception(b["error"]),
        execution_count=b["execution_count"],
        context_id=b["context_id"],
        timed_out=b["timed_out"],
        lost=b["lost"],
        oom_killed=b.get("oom_killed", False),
        sandbox_ended=b.get("sandbox_ended", ""),
    )


def sandbox(b: d.Sandbox) -> n.SandboxInfo:
    """Decode a sandbox."""
    limits: d.Limits = b.get("limits", {})
    end = b.get("exit")
    return n.SandboxInfo(
        name=b.get("name") or b["id"],
        id=b["id"],
        state=b["state"],
        image=b.get("image", ""),
        provider=b["provider"],
        labels=b.get("labels", {}),
        memory_mib=limits.get("memory", 0) >> 20,
        cpus=limits.get("cpus", 0),
        expires=b.get("expires", ""),
        origin=b.get("origin", ""),
        exit_code=end["code"] if end else None,
        exit_reason=end["reason"] if end else "",
        enforcement=b.get("enforcement", {}),
        raw=b,
    )


def entry(b: d.Entry) -> n.FileInfo:
    """Decode the properties of a file."""
    return n.FileInfo(
        name=b["name"],
        path=b["path"],
        type=b["type"],
        size=b["size"],
        mode=b["mode"],
        owner=b["owner"],
        target=b.get("target", ""),
        group=b["group"],
        modified=b["modified"],
    )


def change(b: d.Change) -> n.FileChange:
    """Decode a change in a watched directory."""
    return n.FileChange(b["name"], tuple(b["kinds"]), entry(b["entry"]) if "entry" in b else None)


def workspace(b: d.Workspace) -> n.WorkspaceInfo:
    """Decode a workspace."""
    head = b.get("head")
    return n.WorkspaceInfo(b["name"], head["number"], head["files"], head["size"]) if head else n.WorkspaceInfo(b["name"])


def commit(b: d.WorkspaceCommit) -> n.WorkspaceCommit:
    """Decode the result of a commit."""
    version = b.get("version")
    return n.WorkspaceCommit(version["number"] if version else 0, tuple(c["path"] for c in b["changes"]))


def workspace_version(b: d.WorkspaceVersion) -> n.WorkspaceVersion:
    """Decode a version of a workspace."""
    return n.WorkspaceVersion(b["number"], b["base"], b["files"], b["size"], b["created"], b["actor"], b.get("restored", 0))


def workspace_change(b: d.WorkspaceChange) -> n.WorkspaceChange:
    """Decode a path that differs between two versions."""
    return n.WorkspaceChange(b["path"], b["kind"], b["type"], b["size"])


def volume(b: d.Volume) -> n.VolumeInfo:
    """Decode a volume."""
    return n.VolumeInfo(b["name"], b["id"], b["size"], b["used"], b["created"])


def volume_file(b: d.VolumeEntry) -> n.VolumeFile:
    """Decode the properties of a path in a volume."""
    return n.VolumeFile(
        name=b["name"],
        path=b["path"],
        type=b["type"],
        size=b["size"],
        mode=b["mode"],
        uid=b["uid"],
        gid=b["gid"],
        target=b.get("target", ""),
        modified=b["modified"],
        changed=b["changed"],
        accessed=b["accessed"],
    )


def image(b: d.Image) -> n.ImageInfo:
    """Decode an image."""
    return n.ImageInfo(b["digest"], tuple(b["names"]), b["size"], b["source"])


def template(b: d.Template) -> n.TemplateInfo:
    """Decode a template."""
    return n.TemplateInfo(b["name"], b["image"], b)


def secret(b: d.Secret) -> n.SecretInfo:
    """Decode a secret, which has no value."""
    return n.SecretInfo(b["name"], b["version"], tuple(b["hosts"]))


def pull(ref: str, username: str, password: str, platform: str, insecure: bool) -> d.PullRequest:
    """Encode a pull of an image."""
    fields: d.PullRequest = {
        "ref": ref,
        "username": username,
        "password": password,
        "platform": platform,
        "insecure": insecure,
    }
    return _some(fields)


def secret_value(value: str | bytes, hosts: Sequence[str]) -> d.SecretRequest:
    """Encode the value and the hosts of a secret. Without hosts, an existing secret keeps its own."""
    body: d.SecretRequest = {"hosts": list(hosts)} if hosts else {}
    if isinstance(value, bytes):
        body["value_b64"] = base64.b64encode(value).decode()
    else:
        body["value"] = value
    return body


def chunk(stream: Literal["stdout", "stderr"], b: d.Chunk) -> n.Chunk:
    """Decode a chunk of output."""
    return n.Chunk(stream, base64.b64decode(b["data_b64"]) if "data_b64" in b else b.get("data", "").encode())


def refusal(status: int, content: bytes, retry_after: str | None, url: str, names: Mapping[str, str] | None = None) -> BrigError:
    """Decode an error response. ``names`` has the parameters of fields that only this call names differently."""
    try:
        error = json.loads(content)["error"]
        delay = float(retry_after) if retry_after and retry_after.isdigit() else None
        return to_error(error, status=status, retry_after=delay, names=names)
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
