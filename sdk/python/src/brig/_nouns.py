"""What callers ask for and get back. Nothing here talks to anybody."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from ._errors import InvalidArgumentError

__all__ = [
    "DEFAULT_IMAGE",
    "Artifact",
    "Chunk",
    "CodeResult",
    "CommandOptions",
    "EgressRule",
    "ExecResult",
    "FileInfo",
    "InputOptions",
    "ProgramError",
    "Rich",
    "RunResult",
    "SandboxInfo",
    "SandboxSpec",
    "SecretInfo",
    "SecretUse",
    "SpecOptions",
    "WorkspaceCommit",
    "WorkspaceFile",
    "WorkspaceInfo",
    "WorkspaceUse",
]

#: The image of a sandbox whose caller names none.
DEFAULT_IMAGE = "python:3.11-slim"

State = Literal["creating", "running", "paused", "stopping", "stopped"]
WorkspaceMode = Literal["read_only", "overlay", "direct"]


@dataclass(frozen=True)
class EgressRule:
    """One rule about where a sandbox may connect to.

    The first rule that matches decides; what none matches is denied.
    """

    #: A name (``api.example.com``), or any name below one (``*.example.com``).
    host: str = ""
    #: Instead of a host: a network (``192.0.2.0/24``) or an address.
    cidr: str = ""
    #: Default every port.
    ports: tuple[int, ...] = ()
    #: With a host: HTTP requests with these methods only.
    methods: tuple[str, ...] = ()
    #: With a host: HTTP requests of these paths only; one that ends in ``*`` is a prefix.
    paths: tuple[str, ...] = ()
    #: Refuse what matches, instead of allowing it.
    deny: bool = False

    @classmethod
    def parse(cls, place: str) -> EgressRule:
        """Read ``host``, ``*.host`` or a network, each with ``:port,port``, as the command line has it.

        Before a host may stand methods (``GET,POST host``), after it a path (``host/v1/*``).
        """
        methods: tuple[str, ...] = ()
        if " " in place:
            said, place = place.split(" ", 1)
            methods, place = tuple(said.split(",")), place.strip()
        if _is_network(place):
            return cls(cidr=place, methods=methods)
        host, colon, ports = place.rpartition(":")
        if not colon:
            host, ports = place, ""
        path = ""
        if "/" in ports:
            ports, path = ports[: ports.index("/")], ports[ports.index("/") :]
        try:
            numbers = tuple(int(p) for p in ports.split(",")) if colon else ()
        except ValueError:
            raise InvalidArgumentError(
                f"{ports!r} is not a port", field="egress", hint="write it as api.example.com:443"
            ) from None
        if _is_network(host):
            return cls(cidr=host, ports=numbers, methods=methods)
        if "/" in host:
            host, path = host[: host.index("/")], host[host.index("/") :]
        return cls(host=host.lower(), ports=numbers, methods=methods, paths=(path,) if path else ())


def _is_network(place: str) -> bool:
    try:
        ipaddress.ip_network(place, strict=False)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class SecretUse:
    """A secret that a sandbox is given, and the variable that it is in."""

    name: str
    #: Default the name in capitals, with ``_`` for ``-``.
    env: str = ""


@dataclass(frozen=True)
class WorkspaceUse:
    """A directory that outlives sandboxes, to have at ``/workspace``."""

    name: str
    #: ``direct``: what is written is kept when the sandbox ends; ``overlay``:
    #: when somebody commits it; ``read_only``: nobody writes.
    mode: WorkspaceMode = "direct"
    #: Paths relative to ``/workspace`` below which a commit may change something.
    prefixes: tuple[str, ...] = ()
    #: Absolute paths elsewhere, of which what was written comes along.
    capture: tuple[str, ...] = ()
    #: The version to begin with; 0 is the newest.
    version: int = 0


class CommandOptions(TypedDict, total=False):
    """What else may be said of a command."""

    #: After so many seconds it is killed with all that it started.
    timeout: float | None
    #: Added to the sandbox's environment.
    env: Mapping[str, str]
    #: Default ``/workspace``.
    cwd: str
    #: ``user`` (the default) or ``root``.
    user: str


class InputOptions(CommandOptions, total=False):
    """The same, and what it reads."""

    #: All of its standard input. Default none.
    stdin: str | bytes | None


class SpecOptions(TypedDict, total=False):
    """The fields of a :class:`SandboxSpec` that one-shots take as keywords."""

    name: str
    memory_mib: int | None
    cpus: float | None
    workspace: str | WorkspaceUse | None
    secrets: Sequence[str | SecretUse]
    egress: Sequence[str | EgressRule]
    labels: Mapping[str, str]
    env: Mapping[str, str]
    user: str
    disk_mib: int | None
    processes: int | None
    require: Mapping[str, str]
    provider: str


#: The size of a sandbox whose caller names none.
SIZE: SpecOptions = {"memory_mib": 512, "cpus": 1}


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox is asked to be."""

    #: 1 to 63 of a-z, 0-9 and ``-``; empty has one picked.
    name: str
    #: An image's name or digest. None is the server's own choice.
    image: str | None = DEFAULT_IMAGE
    memory_mib: int | None = 512
    cpus: float | None = 1
    #: A workspace by name, or with what may be done to it.
    workspace: str | WorkspaceUse | None = None
    #: Names of secrets. Values never pass through here.
    secrets: Sequence[str | SecretUse] = ()
    #: Where it may connect to, each as :meth:`EgressRule.parse` reads it; empty is nowhere.
    egress: Sequence[str | EgressRule] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Set for every command.
    env: Mapping[str, str] = field(default_factory=dict)
    #: After how many seconds without use it ends.
    ttl: float | None = None
    #: ``user`` (the default) or ``root``.
    user: str = ""
    #: A template's name, instead of an image.
    template: str = ""
    disk_mib: int | None = None
    processes: int | None = None
    #: The least that must be enforced, by area, for example ``{"memory": "boundary"}``.
    require: Mapping[str, str] = field(default_factory=dict)
    #: The one provider that will do.
    provider: str = ""
    #: After how many seconds without use it is paused until its next use; less than ``ttl``.
    pause_after: float | None = None


@dataclass(frozen=True)
class Command:
    """A program to run in a sandbox: its words, or a script for its shell."""

    argv: tuple[str, ...] = ()
    script: str | None = None
    timeout: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    user: str = ""
    stdin: str | bytes | None = None


@dataclass(frozen=True)
class Program:
    """A one-shot: code in a language, or a command, in a sandbox of its own."""

    spec: SandboxSpec
    code: str | None = None
    language: str = ""
    argv: tuple[str, ...] = ()
    arguments: Mapping[str, Any] | None = None
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    timeout: float | None = None
    stdin: str | bytes | None = None


@dataclass(frozen=True)
class WorkspaceFile:
    """A file or a link of a version of a workspace."""

    path: str
    type: str
    mode: str
    size: int
    target: str = ""


@dataclass(frozen=True)
class ExecResult:
    """How a command ended, and what it wrote."""

    stdout: str
    stderr: str = ""
    #: The program's own; 124 when its time ran out, 137 when its memory did, 128+n by signal n.
    exit_code: int = 0
    #: Whether the middle of either output was left out.
    truncated: bool = False
    #: What was written outside ``/workspace`` and captured with it.
    files: tuple[WorkspaceFile, ...] = ()
    signal: str = ""
    timed_out: bool = False
    oom_killed: bool = False
    #: Why the sandbox ended while the program ran, for example ``killed``; empty otherwise.
    sandbox_ended: str = ""
    #: Seconds.
    duration: float = 0.0
    id: str = ""

    @property
    def output(self) -> str:
        """Both outputs, one after the other."""
        return self.stdout + self.stderr

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class ProgramError:
    """What went wrong with a program: its own exception, or a verdict with a code."""

    name: str
    message: str
    traceback: str = ""
    code: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Artifact:
    """A file that a program left in ``artifacts/``, of a type that comes out."""

    path: str
    content: bytes
    mime_type: str


@dataclass(frozen=True)
class RunResult(ExecResult):
    """How a one-shot ended."""

    #: What ``main`` returned. ``has_value`` tells a ``None`` from no main at all.
    value: Any = None
    has_value: bool = False
    artifacts: tuple[Artifact, ...] = ()
    #: Artifacts that were too many or too large to come out.
    artifacts_skipped: tuple[str, ...] = ()
    error: ProgramError | None = None
    #: The name of the sandbox that is gone, and where it was.
    sandbox: str = ""
    provider: str = ""


@dataclass(frozen=True)
class Chunk:
    """Some output, as it happened."""

    stream: Literal["stdout", "stderr"]
    data: bytes

    @property
    def text(self) -> str:
        """The bytes as text; what is not UTF-8 is replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class Rich:
    """A value that shows itself: by MIME type, images as base64."""

    data: Mapping[str, Any]
    #: Whether it is the value of the last expression.
    main: bool = False


@dataclass(frozen=True)
class CodeResult:
    """What code in a context came to."""

    #: The last expression's value as text.
    text: str
    stdout: str = ""
    stderr: str = ""
    results: tuple[Rich, ...] = ()
    #: The exception that ended it, if one did.
    error: ProgramError | None = None
    execution_count: int = 0
    context_id: str = ""
    timed_out: bool = False
    #: The interpreter ended, and its variables are gone.
    lost: bool = False
    #: The sandbox exceeded its memory limit and ended.
    oom_killed: bool = False
    #: Why the sandbox ended while the code ran, for example ``killed``; empty otherwise.
    sandbox_ended: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ran to its end."""
        return self.error is None and not self.timed_out and not self.lost


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as it is now."""

    name: str
    id: str
    state: State
    image: str = ""
    provider: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    memory_mib: int = 0
    cpus: float = 0
    #: When its lease ends, as RFC 3339; empty once it has ended.
    expires: str = ""
    #: Everything else, as the service tells it.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class FileInfo:
    """A file, a directory or a link in a sandbox."""

    name: str
    path: str
    type: str
    size: int = 0
    #: Permission bits.
    mode: int = 0
    owner: str = ""
    target: str = ""


@dataclass(frozen=True)
class WorkspaceInfo:
    """A directory that outlives sandboxes, and its newest version."""

    name: str
    #: 0 before the first.
    version: int = 0
    files: int = 0
    size: int = 0


@dataclass(frozen=True)
class WorkspaceCommit:
    """What became of a commit: the newest version, and the paths that changed."""

    version: int
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class SecretInfo:
    """What may be known of a secret."""

    name: str
    version: int = 0
    hosts: tuple[str, ...] = ()
