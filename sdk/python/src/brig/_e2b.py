"""Conversion between Python objects and bodies of E2B's protocol, without a connection."""

from __future__ import annotations

import base64
import json
import re
import struct
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from signal import Signals
from typing import Any, Literal

from . import _nouns as n
from ._errors import BrigError, InvalidArgumentError, SandboxUnavailable, UnsupportedError, of_kind

Body = dict[str, Any]

#: The ports of a sandbox's services: processes and files, and interpreters.
ENVD, INTERPRETER = 49983, 49999

#: The label that has the name of a sandbox. E2B's sandboxes have only IDs.
NAME_LABEL = "brig_name"

STREAMS: tuple[Literal["stdout"], Literal["stderr"]] = ("stdout", "stderr")

_ONLY_NAMES = "give only host names, or use a Brig server"


def templates(text: str) -> dict[str, str]:
    """Parse the templates of images: ``image=template,image=template``."""
    out = {}
    for pair in filter(None, text.split(",")):
        image, equals, template = pair.rpartition("=")
        if not equals or not image or not template:
            raise InvalidArgumentError(
                f"{pair!r} does not map an image to a template", field="BRIG_TEMPLATES", hint="write it as python:3.11-slim=base"
            )
        out[image.strip()] = template.strip()
    return out


def spec(s: n.SandboxSpec, templates: Mapping[str, str]) -> Body:
    """Encode the specification of a sandbox. Reject fields that E2B's protocol lacks."""
    for field, given in (
        ("secrets", s.secrets),
        ("workspace", s.workspace),
        ("volumes", s.volumes),
        ("require", s.require),
        ("provider", s.provider),
        ("disk_mib", s.disk_mib),
        ("processes", s.processes),
        ("pause_after", s.pause_after),
        ("pause_files_only", s.pause_files_only),
        ("pause_at_end", s.pause_at_end),
        ("cwd", s.cwd),
        ("open_files", s.open_files),
        ("output_kib", s.output_kib),
        ("bandwidth", s.bandwidth),
        ("main", s.main),
        ("pausable", s.pausable),
        ("fixed_lease", s.fixed_lease),
        ("freeze_after", s.freeze_after),
        ("regions", s.regions),
        ("prefer", s.prefer),
    ):
        if given:
            message = f"this package cannot use {field} with E2B's protocol"
            raise UnsupportedError(message, field=field, hint="leave it out, or use a Brig server")
    body: Body = {
        "templateID": s.template or templates.get(s.image or "base", s.image or "base"),
        "metadata": {**s.labels, NAME_LABEL: s.name},
        "envVars": dict(s.env),
        "secure": True,
        "allow_internet_access": False,
    }
    if s.ttl is not None:
        body["timeout"] = round(s.ttl)
    if s.egress:
        body["network"] = {"allowOut": [_host(r) for r in s.egress], "denyOut": ["0.0.0.0/0"]}
    return body


def _host(rule: str | n.EgressRule) -> str:
    r = n.EgressRule.parse(rule) if isinstance(rule, str) else rule
    if r.ports or r.methods or r.paths or r.deny:
        raise UnsupportedError("E2B's protocol has only rules for hosts", field="egress", hint=_ONLY_NAMES)
    return r.host or r.cidr


def sandbox(b: Body) -> n.SandboxInfo:
    """Decode a sandbox."""
    labels = dict(b.get("metadata") or {})
    name = labels.pop(NAME_LABEL, "") or b["sandboxID"]
    return n.SandboxInfo(
        name=name,
        id=b["sandboxID"],
        state="running",
        image=b.get("alias") or b.get("templateID", ""),
        provider="e2b",
        labels=labels,
        memory_mib=b.get("memoryMB", 0),
        cpus=b.get("cpuCount", 0),
        expires=b.get("endAt", ""),
        raw=b,
    )


def start(c: n.Command) -> Body:
    """Encode a command."""
    words = c.argv if c.script is None else ("/bin/sh", "-c", c.script)
    process: Body = {"cmd": words[0], "args": list(words[1:]), "envs": dict(c.env)}
    if c.cwd:
        process["cwd"] = c.cwd
    return {"process": process, "stdin": c.stdin is not None}


def envelope(body: Body) -> bytes:
    """Encode a message of a Connect stream."""
    data = json.dumps(body).encode()
    return struct.pack(">BI", 0, len(data)) + data


class Envelopes:
    """Splits chunks of bytes into messages of a Connect stream."""

    _END = 2  # the flag of the last message

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Body]:
        """Add a chunk, and return the messages that it completes. Raise the error of an end message."""
        self._rest += data
        out = []
        while len(self._rest) >= 5:
            flags, size = struct.unpack(">BI", self._rest[:5])
            if len(self._rest) < 5 + size:
                break
            message = json.loads(self._rest[5 : 5 + size])
            self._rest = self._rest[5 + size :]
            if flags & self._END == 0:
                out.append(message)
            elif "error" in message:
                raise rpc_error(message["error"])
        return out


#: Brig's kinds of errors for the codes of Connect.
_CODES = {
    "invalid_argument": "invalid_argument",
    "unauthenticated": "unauthenticated",
    "permission_denied": "permission_denied",
    "not_found": "not_found",
    "already_exists": "already_exists",
    "failed_precondition": "failed_precondition",
    "unimplemented": "unimplemented",
    "resource_exhausted": "rate_limited",
    "deadline_exceeded": "timeout",
    "canceled": "canceled",
    "unavailable": "connection_failed",
}


def rpc_error(b: Mapping[str, Any]) -> BrigError:
    """Decode an error of a sandbox's service."""
    kind = _CODES.get(str(b.get("code")), "internal")
    return of_kind(kind, str(b.get("message") or b.get("code")))


_STATUS = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    409: "failed_precondition",
    429: "rate_limited",
    501: "unimplemented",
    502: "connection_failed",
    503: "connection_failed",
}


def refusal(status: int, content: bytes) -> BrigError:
    """Decode an error response of the control plane or of a sandbox's service."""
    try:
        error = json.loads(content)
        message = str(error["message"])
    except (ValueError, KeyError, TypeError):
        return SandboxUnavailable(f"the response is not in E2B's protocol (HTTP {status})", status=status)
    if isinstance(error.get("code"), str) and error["code"] in _CODES:
        return rpc_error(error)
    return of_kind(_STATUS.get(status, "internal"), message, status=status)


#: Signals by the names that E2B's services use.
_SIGNALS = {
    "hangup": Signals.SIGHUP,
    "interrupt": Signals.SIGINT,
    "quit": Signals.SIGQUIT,
    "illegal instruction": Signals.SIGILL,
    "trace/breakpoint trap": Signals.SIGTRAP,
    "aborted": Signals.SIGABRT,
    "bus error": Signals.SIGBUS,
    "floating point exception": Signals.SIGFPE,
    "killed": Signals.SIGKILL,
    "segmentation fault": Signals.SIGSEGV,
    "broken pipe": Signals.SIGPIPE,
    "alarm clock": Signals.SIGALRM,
    "terminated": Signals.SIGTERM,
}


class Output:
    """Collects the output of a process, and makes its result."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._written = {"stdout": b"", "stderr": b""}

    def take(self, event: Mapping[str, Any]) -> list[n.Chunk]:
        """Add an event, and return its output."""
        data = event.get("data") or {}
        chunks = [n.Chunk(s, base64.b64decode(data[s])) for s in STREAMS if s in data]
        for chunk in chunks:
            self._written[chunk.stream] += chunk.data
        return chunks

    def ended(self, end: Mapping[str, Any]) -> n.ExecResult:
        """Return the result. If a signal ended the process, the status has the signal instead of a code."""
        if end.get("exited") or (ended := _SIGNALS.get(str(end.get("status", "")).removeprefix("signal: "))) is None:
            return self._result(int(end.get("exitCode", 0)))
        return replace(self._result(128 + ended), signal=ended.name)

    def timed_out(self) -> n.ExecResult:
        """Return the result of a process that exceeded its timeout."""
        return replace(self._result(124), timed_out=True)

    def _result(self, code: int) -> n.ExecResult:
        text = [self._written[s].decode("utf-8", "replace") for s in STREAMS]
        return n.ExecResult(text[0], text[1], exit_code=code, duration=time.monotonic() - self._begun)


def millis(timestamp: str) -> int:
    """Convert a time in RFC 3339 to milliseconds."""
    moment, fraction = re.fullmatch(r"([^.Z]*)(?:\.(\d+))?Z", timestamp, re.ASCII).groups("0")  # type: ignore[union-attr]
    whole = datetime.fromisoformat(f"{moment}+00:00")
    return round(whole.timestamp()) * 1000 + int(f"{fraction:0<3}"[:3])


def entry(b: Mapping[str, Any]) -> n.FileInfo:
    """Decode the properties of a file."""
    kinds = {"FILE_TYPE_FILE": "file", "FILE_TYPE_DIRECTORY": "directory", "FILE_TYPE_SYMLINK": "symlink"}
    return n.FileInfo(
        name=b["name"],
        path=b["path"],
        type="symlink" if b.get("isSymlink") else kinds.get(b.get("type", ""), b.get("type", "other")),
        size=int(b.get("size", 0)),
        mode=int(b.get("mode", 0)) & 0o7777,
        owner=b.get("owner", ""),
        target=b.get("symlinkTarget", ""),
    )


#: MIME types by the names that E2B's interpreters use.
_MIME = {
    "text": "text/plain",
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
}


class Cell:
    """Collects the messages of a cell, and makes its result."""

    def __init__(self, context: str) -> None:
        self._context = context
        self._out = {"stdout": "", "stderr": ""}
        self._results: list[n.Rich] = []
        self._error: n.ProgramError | None = None
        self._count = 0

    def take(self, line: Mapping[str, Any]) -> None:
        """Add a message."""
        kind = line.get("type")
        if kind in self._out:
            self._out[kind] += line["text"]
        elif kind == "error":
            self._error = n.ProgramError(line["name"], line["value"], line["traceback"])
        elif kind == "number_of_executions":
            self._count = line["execution_count"]
        elif kind == "result":
            shown = {mime: line[name] for name, mime in _MIME.items() if line.get(name) is not None}
            self._results.append(n.Rich(shown, bool(line.get("is_main_result"))))

    def result(self, *, timed_out: bool = False) -> n.CodeResult:
        """Return the result."""
        text = next((str(r.data.get("text/plain", "")) for r in self._results if r.main), "")
        return n.CodeResult(
            text,
            self._out["stdout"],
            self._out["stderr"],
            tuple(self._results),
            self._error,
            self._count,
            self._context,
            timed_out,
        )
