"""The types of arguments and results."""

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
    "ContextInfo",
    "EgressRule",
    "ExecResult",
    "Execution",
    "FileChange",
    "FileInfo",
    "ForkOptions",
    "ImageInfo",
    "InputOptions",
    "MainProgram",
    "ProcessInfo",
    "ProcessOptions",
    "ProgramError",
    "Rich",
    "RunResult",
    "RunSummary",
    "SandboxInfo",
    "SandboxSpec",
    "SandboxUsage",
    "SecretInfo",
    "SecretUse",
    "SpecOptions",
    "TemplateInfo",
    "Terminal",
    "VolumeFile",
    "VolumeInfo",
    "VolumeMount",
    "WorkspaceChange",
    "WorkspaceCommit",
    "WorkspaceFile",
    "WorkspaceInfo",
    "WorkspaceUse",
    "WorkspaceVersion",
]

#: The default image.
DEFAULT_IMAGE = "python:3.11-slim"

State = Literal["creating", "running", "paused", "stopping", "stopped"]
WorkspaceMode = Literal["read_only", "overlay", "direct"]
RunStatus = Literal["success", "error", "timeout", "out_of_memory"]
Preference = Literal["", "cheapest", "region"]


@dataclass(frozen=True)
class EgressRule:
    """An egress rule: connections that a sandbox may or may not open.

    The first matching rule decides. Connections that no rule matches are denied.
    """

    #: A host name (``api.example.com``), or every name below one (``*.example.com``).
    host: str = ""
    #: A network (``192.0.2.0/24``) or an address, instead of a host.
    cidr: str = ""
    #: The ports. Default: all.
    ports: tuple[int, ...] = ()
    #: With a host: only HTTP requests with these methods.
    methods: tuple[str, ...] = ()
    #: With a host: only HTTP requests for these paths. A path that ends in ``*`` is a prefix.
    paths: tuple[str, ...] = ()
    #: Deny matching connections instead of allowing them.
    deny: bool = False

    @classmethod
    def parse(cls, place: str) -> EgressRule:
        """Parse ``host``, ``*.host`` or a network, each with optional ``:port,port``, like ``--allow``.

        Methods can precede a host (``GET,POST host``), and a path can follow it (``host/v1/*``).
        """
        methods: tuple[str, ...] = ()
        if " " in place:
            names, place = place.split(" ", 1)
            methods, place = tuple(names.split(",")), place.strip()
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
    """A secret of a sandbox, and its environment variable."""

    name: str
    #: The variable. Default: the name in upper case, with ``_`` for ``-``.
    env: str = ""


@dataclass(frozen=True)
class WorkspaceUse:
    """A workspace of a sandbox, at ``/workspace``."""

    name: str
    #: ``direct``: changes are saved when the sandbox ends. ``overlay``: changes are
    #: saved by a commit. ``read_only``: changes are not possible.
    mode: WorkspaceMode = "direct"
    #: Paths relative to ``/workspace``. A commit includes only changes below them.
    prefixes: tuple[str, ...] = ()
    #: Absolute paths outside ``/workspace``, whose changes a commit includes.
    capture: tuple[str, ...] = ()
    #: The version to start with; 0 is the newest.
    version: int = 0


@dataclass(frozen=True)
class VolumeMount:
    """A volume of a sandbox, which other sandboxes can mount at the same time."""

    #: The name or the ID of the volume.
    name: str
    #: The absolute path in the sandbox. It is created if the image lacks it.
    path: str
    #: The sandbox cannot change the volume.
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> VolumeMount:
        """Parse ``name:path`` or ``name:path:ro``, like ``--volume``."""
        name, *rest = text.split(":")
        if len(rest) not in (1, 2) or rest[1:] not in ([], ["ro"], ["rw"]):
            raise InvalidArgumentError(f"{text!r} is not name:path[:ro]", field="volumes", hint="write it as data:/data")
        return cls(name, rest[0], rest[1:] == ["ro"])


@dataclass(frozen=True)
class MainProgram:
    """The main program of a sandbox. The sandbox ends with it, and the logs have its output."""

    #: The program and its arguments, or the arguments of the entrypoint.
    command: Sequence[str] = ()
    #: Instead of a command: a script for the image's shell.
    script: str = ""
    #: Run the image's entrypoint, with ``command`` or the image's own command as its arguments.
    entrypoint: bool = False
    #: Variables in addition to the sandbox's environment.
    env: Mapping[str, str] = field(default_factory=dict)
    #: The working directory. Default: ``/workspace``.
    cwd: str = ""
    #: ``user`` (the default), ``root``, or IDs such as ``1001:1001``.
    user: str = ""
    #: Seconds after which it is killed.
    timeout: float | None = None


@dataclass(frozen=True)
class Terminal:
    """The size of a process's terminal."""

    columns: int = 80
    rows: int = 24


class CommandOptions(TypedDict, total=False):
    """Options of a command."""

    #: Seconds after which the command and its descendants are killed.
    timeout: float | None
    #: Variables in addition to the sandbox's environment.
    env: Mapping[str, str]
    #: The working directory. Default: ``/workspace``.
    cwd: str
    #: ``user`` (the default), ``root``, or IDs such as ``1001:1001``.
    user: str


class InputOptions(CommandOptions, total=False):
    """Options of a command with standard input."""

    #: The complete standard input. Default: none.
    stdin: str | bytes | None
    #: The command continues if the client disconnects. ``get_exec`` has its result.
    survive: bool


class ProcessOptions(CommandOptions, total=False):
    """Options of a process in the background."""

    #: A name of your choice.
    tag: str
    #: The process has a terminal of this size, instead of pipes.
    terminal: Terminal | None
    #: The standard input is empty. Otherwise it stays open for :meth:`Process.write`.
    no_input: bool


class SpecOptions(TypedDict, total=False):
    """The fields of a :class:`SandboxSpec` that one-shot runs accept as keywords."""

    name: str
    memory_mib: int | None
    cpus: float | None
    workspace: str | WorkspaceUse | None
    volumes: Sequence[str | VolumeMount]
    secrets: Sequence[str | SecretUse]
    egress: Sequence[str | EgressRule]
    labels: Mapping[str, str]
    env: Mapping[str, str]
    user: str
    disk_mib: int | None
    processes: int | None
    require: Mapping[str, str]
    provider: str
    open_files: int | None
    output_kib: int | None
    bandwidth: int | None
    regions: Sequence[str]
    prefer: Preference


#: The default limits.
SIZE: SpecOptions = {"memory_mib": 512, "cpus": 1}


@dataclass(frozen=True)
class SandboxSpec:
    """The specification of a sandbox."""

    #: 1 to 63 characters of a-z, 0-9 and ``-``. If it is empty, the server generates a name.
    name: str
    #: The name or digest of an image. None selects the server's default.
    image: str | None = DEFAULT_IMAGE
    memory_mib: int | None = 512
    cpus: float | None = 1
    #: The name of a workspace in mode ``direct``, or a workspace with options.
    workspace: str | WorkspaceUse | None = None
    #: Names of secrets, never their values.
    secrets: Sequence[str | SecretUse] = ()
    #: Egress rules, in the format of :meth:`EgressRule.parse`. Without rules, all egress is blocked.
    egress: Sequence[str | EgressRule] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    #: Environment variables of every command.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Seconds without use after which the sandbox ends.
    ttl: float | None = None
    #: The user of commands: ``user`` (the default), ``root``, or IDs such as ``1001:1001``.
    user: str = ""
    #: The name of a template, instead of an image.
    template: str = ""
    disk_mib: int | None = None
    processes: int | None = None
    #: The minimum level of enforcement by area, for example ``{"memory": "boundary"}``.
    require: Mapping[str, str] = field(default_factory=dict)
    #: The only provider to use.
    provider: str = ""
    #: Seconds without use after which the sandbox is paused until its next use; less than ``ttl``.
    pause_after: float | None = None
    #: Pauses at the end of the lease or without use keep only the files: its next use boots it again.
    pause_files_only: bool = False
    #: The sandbox is paused at the end of its lease instead of ended.
    pause_at_end: bool = False
    #: The working directory of commands. Default: the template's or image's, or ``/workspace``.
    cwd: str = ""
    #: Open files of each process.
    open_files: int | None = None
    #: KiB of each output stream of a command that are kept.
    output_kib: int | None = None
    #: Bytes per second in each direction. Default: unlimited.
    bandwidth: int | None = None
    #: The main program. Without one, the sandbox waits for commands.
    main: MainProgram | None = None
    #: The sandbox can be paused and forked while processes run in it, and not only contexts.
    pausable: bool = False
    #: Use does not renew the lease.
    fixed_lease: bool = False
    #: Seconds without use after which the sandbox is frozen until its next use.
    freeze_after: float | None = None
    #: Regions of providers, the best one first, with ``prefer="region"``.
    regions: Sequence[str] = ()
    #: How to select the provider: ``cheapest`` or ``region``. Default: the tenant's routing.
    prefer: Preference = ""
    #: Volumes to mount, in the format of :meth:`VolumeMount.parse`.
    volumes: Sequence[str | VolumeMount] = ()


class ForkOptions(TypedDict, total=False):
    """Options of the copies of a sandbox. Without an option, it is as for the original."""

    #: The name of the copy, if there is one. Default: a generated name.
    name: str
    #: Create one paused copy. It uses only disk space, and can be forked any number of times.
    paused: bool
    labels: Mapping[str, str] | None
    #: Seconds without use after which each copy ends.
    ttl: float | None
    #: Variables in addition to the original's. Programs that are copied keep theirs.
    env: Mapping[str, str]
    #: Rules instead of the original's. An empty sequence blocks all egress.
    egress: Sequence[str | EgressRule] | None
    #: Bytes per second in each direction, with ``egress``. Default: unlimited.
    bandwidth: int | None
    #: The user of commands: ``user``, ``root``, or IDs such as ``1001:1001``.
    user: str
    #: The working directory of commands.
    cwd: str
    #: Each copy is paused at the end of its lease instead of ended.
    pause_at_end: bool | None
    #: With ``pause_at_end``: pauses at the end of the lease or without use keep only the files.
    pause_files_only: bool
    #: Volumes instead of the original's, if it is paused with ``files_only``. An empty sequence mounts none.
    volumes: Sequence[str | VolumeMount] | None
    #: Limits are possible if the original is paused with ``files_only``.
    memory_mib: int | None
    cpus: float | None
    disk_mib: int | None
    processes: int | None
    open_files: int | None
    output_kib: int | None


@dataclass(frozen=True)
class Fork:
    """Copies of a sandbox. See :class:`ForkOptions`."""

    count: int = 1
    name: str = ""
    paused: bool = False
    labels: Mapping[str, str] | None = None
    ttl: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    egress: Sequence[str | EgressRule] | None = None
    bandwidth: int | None = None
    user: str = ""
    cwd: str = ""
    pause_at_end: bool | None = None
    pause_files_only: bool = False
    memory_mib: int | None = None
    cpus: float | None = None
    disk_mib: int | None = None
    processes: int | None = None
    open_files: int | None = None
    output_kib: int | None = None
    volumes: Sequence[str | VolumeMount] | None = None


@dataclass(frozen=True)
class Command:
    """A command in a sandbox: a program with arguments, or a shell script."""

    argv: tuple[str, ...] = ()
    script: str | None = None
    timeout: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    user: str = ""
    stdin: str | bytes | None = None
    survive: bool = False
    tag: str = ""
    terminal: Terminal | None = None
    no_input: bool = False


@dataclass(frozen=True)
class Program:
    """A one-shot run: code in a language, or a command, in a new sandbox."""

    spec: SandboxSpec
    code: str | None = None
    language: str = ""
    argv: tuple[str, ...] = ()
    arguments: Mapping[str, Any] | None = None
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    timeout: float | None = None
    stdin: str | bytes | None = None
    grace: float | None = None


@dataclass(frozen=True)
class WorkspaceFile:
    """A file or link in a version of a workspace."""

    path: str
    type: str
    mode: str
    size: int
    target: str = ""


@dataclass(frozen=True)
class ExecResult:
    """The result of a command."""

    stdout: str
    stderr: str = ""
    #: The program's exit code; 124 after a timeout, 137 when it ran out of memory, 128+n after signal n.
    exit_code: int = 0
    #: Whether the middle of an output is missing, because it exceeded the limit.
    truncated: bool = False
    #: The captured files outside ``/workspace``.
    files: tuple[WorkspaceFile, ...] = ()
    signal: str = ""
    timed_out: bool = False
    oom_killed: bool = False
    #: Why the sandbox ended while the program ran, for example ``killed``; empty otherwise.
    sandbox_ended: str = ""
    #: The duration in seconds.
    duration: float = 0.0
    id: str = ""

    @property
    def output(self) -> str:
        """Standard output followed by standard error."""
        return self.stdout + self.stderr

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class Execution(ExecResult):
    """A command of a sandbox, with its result so far."""

    command: tuple[str, ...] = ()
    script: str = ""
    cwd: str = ""
    user: str = ""
    #: Whether the command has ended.
    done: bool = False
    #: The time of the start in RFC 3339.
    started: str = ""


@dataclass(frozen=True)
class ProcessInfo:
    """A process in the background."""

    pid: int
    running: bool
    command: tuple[str, ...] = ()
    script: str = ""
    tag: str = ""
    #: The time of the start in RFC 3339.
    started: str = ""
    #: How the process ended, without its output; None while it runs.
    result: ExecResult | None = None


@dataclass(frozen=True)
class ProgramError:
    """The error of a program: its exception, or the reason why Brig ended it, with a code."""

    name: str
    message: str
    traceback: str = ""
    code: str = ""
    hint: str = ""


@dataclass(frozen=True)
class Artifact:
    """A file that a program wrote to ``artifacts/``, of a supported type."""

    path: str
    content: bytes
    mime_type: str


@dataclass(frozen=True)
class RunResult(ExecResult):
    """The result of a one-shot run."""

    #: The return value of ``main``. ``has_value`` is false if ``main`` was not called.
    value: Any = None
    has_value: bool = False
    artifacts: tuple[Artifact, ...] = ()
    #: The paths of artifacts that exceeded a limit.
    artifacts_skipped: tuple[str, ...] = ()
    error: ProgramError | None = None
    #: The name of the removed sandbox.
    sandbox: str = ""
    provider: str = ""


@dataclass(frozen=True)
class RunSummary:
    """A finished one-shot run, without its output, value and artifacts."""

    #: The name of the removed sandbox, with which ``get_run`` returns the whole result.
    sandbox: str
    status: RunStatus
    exit_code: int = 0
    #: The time of the start in RFC 3339.
    started: str = ""
    #: The duration in seconds.
    duration: float = 0.0
    signal: str = ""
    image: str = ""
    provider: str = ""
    #: Without its traceback.
    error: ProgramError | None = None


@dataclass(frozen=True)
class Chunk:
    """A chunk of output."""

    stream: Literal["stdout", "stderr"]
    data: bytes

    @property
    def text(self) -> str:
        """The data as text. Bytes that are not UTF-8 are replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class Rich:
    """A displayed value: its representations by MIME type, with images in base64."""

    data: Mapping[str, Any]
    #: Whether it is the value of the last expression.
    main: bool = False
    #: Describes the representations, for example the size of an image.
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: The ID of a display that code may update; empty for other values.
    display_id: str = ""
    #: Whether it replaces a value that earlier code displayed with this ID.
    update: bool = False


@dataclass(frozen=True)
class CodeResult:
    """The result of code in a context."""

    #: The value of the last expression as text.
    text: str
    stdout: str = ""
    stderr: str = ""
    results: tuple[Rich, ...] = ()
    #: The exception that ended the code, if any.
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
        """Whether the code ran to its end."""
        return self.error is None and not self.timed_out and not self.lost


@dataclass(frozen=True)
class ContextInfo:
    """A context: an interpreter that keeps its variables."""

    id: str
    language: str
    #: ``idle``, ``busy``, or ``dead`` until the next run starts another interpreter.
    state: str = ""
    cwd: str = ""
    #: The version of the interpreter.
    version: str = ""
    execution_count: int = 0


@dataclass(frozen=True)
class SandboxUsage:
    """What a sandbox uses. Sizes are bytes."""

    #: The time of the measurement in RFC 3339.
    at: str
    #: Seconds of processor time since the start.
    cpu: float
    memory: int
    #: The part of the memory that the host can reclaim.
    cache: int
    sent: int
    received: int
    #: The size of the files that it wrote; None if the provider does not measure it.
    disk: int | None = None


@dataclass(frozen=True)
class SandboxInfo:
    """The state of a sandbox."""

    name: str
    id: str
    state: State
    image: str = ""
    provider: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    memory_mib: int = 0
    cpus: float = 0
    #: The end of the lease in RFC 3339; empty if the sandbox has ended.
    expires: str = ""
    #: The ID of the sandbox of which it is a copy.
    origin: str = ""
    #: The exit code of the main program of a sandbox that has ended.
    exit_code: int | None = None
    #: Why the sandbox has ended.
    exit_reason: str = ""
    #: How each limit is enforced, by area. ``attest`` verifies it in this very sandbox.
    enforcement: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    #: The complete response of the service.
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
    group: str = ""
    #: The time of the last change in RFC 3339.
    modified: str = ""


@dataclass(frozen=True)
class FileChange:
    """A change in a watched directory."""

    #: The path relative to the directory.
    name: str
    #: ``create``, ``rename``, ``chmod``, ``write``, ``remove``.
    kinds: tuple[str, ...]
    #: The file after the change, if it exists.
    file: FileInfo | None = None


@dataclass(frozen=True)
class WorkspaceInfo:
    """A workspace and its newest version."""

    name: str
    #: The number of the newest version; 0 if there is no version.
    version: int = 0
    files: int = 0
    size: int = 0


@dataclass(frozen=True)
class WorkspaceCommit:
    """The result of a commit: the newest version, and the changed paths."""

    version: int
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkspaceVersion:
    """A version of a workspace."""

    number: int
    #: The version from which it was made; 0 for the first one.
    base: int = 0
    files: int = 0
    #: The size of all files in bytes.
    size: int = 0
    #: The time of its creation in RFC 3339.
    created: str = ""
    #: Who created it.
    actor: str = ""
    #: The version that it restored, or 0.
    restored: int = 0


@dataclass(frozen=True)
class WorkspaceChange:
    """A path that differs between two versions of a workspace."""

    #: The path relative to ``/workspace``.
    path: str
    #: ``added``, ``changed`` or ``removed``.
    kind: str
    type: str
    size: int = 0


@dataclass(frozen=True)
class VolumeInfo:
    """A volume: a directory that several sandboxes mount at the same time. Sizes are bytes."""

    name: str
    id: str
    #: The size of its file system, which needs a small part for itself.
    size: int = 0
    #: What it takes of the server's disk.
    used: int = 0
    #: The time of its creation in RFC 3339.
    created: str = ""


@dataclass(frozen=True)
class VolumeFile:
    """A file, a directory or a link in a volume. Times are in RFC 3339."""

    name: str
    #: The path in the volume, with a slash at the beginning.
    path: str
    #: ``file``, ``directory``, ``symlink`` or ``other``.
    type: str
    size: int = 0
    #: Permission bits.
    mode: int = 0
    #: The ID of the user that owns it.
    uid: int = 0
    #: The ID of the group that owns it.
    gid: int = 0
    #: The target of a link, as it was written.
    target: str = ""
    #: The time of the last change of the content.
    modified: str = ""
    #: The time of the last change of the content, the owner or the mode.
    changed: str = ""
    accessed: str = ""


@dataclass(frozen=True)
class ImageInfo:
    """An image of the server."""

    digest: str
    names: tuple[str, ...]
    #: The unpacked size in bytes.
    size: int = 0
    source: str = ""


@dataclass(frozen=True)
class TemplateInfo:
    """A template of the server."""

    name: str
    image: str
    #: The complete response of the service.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class SecretInfo:
    """A secret without its value."""

    name: str
    version: int = 0
    hosts: tuple[str, ...] = ()
