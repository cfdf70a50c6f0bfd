"""The operations of a service, independent of its protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence

from .. import _nouns as n
from .._errors import UnsupportedError
from ._connection import Connection


class Backend:
    """A service. An operation that a subclass does not override raises UnsupportedError."""

    protocol = "this service"

    def lacks(self, what: str, field: str = "") -> UnsupportedError:
        """Return the error for a feature that the protocol lacks."""
        return UnsupportedError(f"{self.protocol} has no {what}", field=field, hint="use a Brig server")

    async def close(self) -> None:
        """Close the connections, and stop the server if this client has started it."""
        raise NotImplementedError

    # Sandboxes.

    async def create(self, spec: n.SandboxSpec) -> n.SandboxInfo:
        raise self.lacks("sandboxes that stay")

    async def info(self, name: str) -> n.SandboxInfo:
        raise self.lacks("sandboxes that stay")

    async def sandboxes(self, labels: Mapping[str, str], state: str) -> list[n.SandboxInfo]:
        raise self.lacks("sandboxes that stay")

    async def fork(self, name: str, fork: n.Fork) -> list[n.SandboxInfo]:
        raise self.lacks("forks")

    async def pause(self, name: str, files_only: bool) -> n.SandboxInfo:
        raise self.lacks("pauses")

    async def resume(self, name: str) -> n.SandboxInfo:
        raise self.lacks("pauses")

    async def stop(self, name: str, grace: float | None) -> None:
        raise self.lacks("way to stop a sandbox")

    async def kill(self, name: str) -> None:
        raise self.lacks("way to kill a sandbox")

    async def remove(self, name: str) -> None:
        raise self.lacks("way to remove a sandbox")

    async def extend(self, name: str, ttl: float) -> n.SandboxInfo:
        raise self.lacks("leases")

    async def set_egress(self, name: str, rules: Sequence[str | n.EgressRule], bandwidth: int | None) -> None:
        raise self.lacks("rules of egress", "egress")

    async def usage(self, name: str) -> n.SandboxUsage:
        raise self.lacks("measurements of a sandbox")

    async def attest(self, name: str) -> n.SandboxInfo:
        raise self.lacks("way to verify limits")

    async def logs(self, name: str, tail: int | None, times: bool) -> str:
        raise self.lacks("logs")

    def follow_logs(self, name: str, tail: int | None, times: bool) -> AsyncGenerator[str, None]:
        raise self.lacks("logs that are followed")

    # Programs.

    async def exec(self, name: str, command: n.Command) -> n.ExecResult:
        raise self.lacks("commands")

    def stream(self, name: str, command: n.Command) -> AsyncGenerator[n.Chunk | n.ExecResult, None]:
        raise self.lacks("streams")

    async def executions(self, name: str) -> list[n.Execution]:
        raise self.lacks("records of commands")

    async def execution(self, name: str, id: str) -> n.Execution:
        raise self.lacks("records of commands")

    async def run(self, program: n.Program) -> n.RunResult:
        raise self.lacks("one-shots")

    def stream_run(self, program: n.Program) -> AsyncGenerator[n.Chunk | n.ExecResult, None]:
        raise self.lacks("streams of one-shots")

    async def runs(self, status: str) -> list[n.RunSummary]:
        raise self.lacks("records of one-shots")

    async def run_result(self, name: str) -> n.RunResult:
        raise self.lacks("records of one-shots")

    async def contexts(self, name: str) -> list[n.ContextInfo]:
        raise self.lacks("list of contexts")

    async def create_context(self, name: str, language: str, cwd: str, env: Mapping[str, str]) -> str:
        raise self.lacks("contexts")

    async def run_code(
        self, name: str, code: str, language: str, context: str, timeout: float | None, env: Mapping[str, str]
    ) -> n.CodeResult:
        raise self.lacks("contexts")

    def stream_code(
        self, name: str, code: str, language: str, context: str, timeout: float | None, env: Mapping[str, str]
    ) -> AsyncGenerator[n.Chunk | n.Rich | n.CodeResult, None]:
        raise self.lacks("streams of code")

    async def interrupt_context(self, name: str, context: str) -> None:
        raise self.lacks("way to interrupt a context")

    async def restart_context(self, name: str, context: str) -> None:
        raise self.lacks("way to restart a context")

    async def remove_context(self, name: str, context: str) -> None:
        raise self.lacks("way to remove a context")

    async def start(self, name: str, command: n.Command) -> int:
        raise self.lacks("processes in the background")

    async def processes(self, name: str) -> list[n.ProcessInfo]:
        raise self.lacks("processes in the background")

    def attach(self, name: str, pid: int, offset: int) -> AsyncGenerator[n.Chunk | n.ExecResult, None]:
        raise self.lacks("processes in the background")

    async def resize(self, name: str, pid: int, terminal: n.Terminal) -> None:
        raise self.lacks("processes in the background")

    async def signal(self, name: str, pid: int, signal: str) -> None:
        raise self.lacks("processes in the background")

    async def write_input(self, name: str, pid: int, data: bytes) -> None:
        raise self.lacks("processes in the background")

    async def close_input(self, name: str, pid: int) -> None:
        raise self.lacks("processes in the background")

    async def connect(self, name: str, port: int) -> Connection:
        raise self.lacks("way to connect to a port")

    # Files.

    async def read_file(self, name: str, path: str, user: str, offset: int, length: int | None) -> bytes:
        raise self.lacks("files")

    async def write_file(self, name: str, path: str, data: bytes, mode: int | None, user: str) -> n.FileInfo:
        raise self.lacks("files")

    async def list_files(self, name: str, path: str, depth: int, user: str) -> list[n.FileInfo]:
        raise self.lacks("files")

    async def stat_file(self, name: str, path: str, user: str) -> n.FileInfo:
        raise self.lacks("files")

    async def make_directory(self, name: str, path: str, user: str) -> n.FileInfo:
        raise self.lacks("files")

    async def move_file(self, name: str, source: str, target: str, user: str) -> n.FileInfo:
        raise self.lacks("files")

    async def compose_file(self, name: str, sources: Sequence[str], target: str, user: str) -> n.FileInfo:
        raise self.lacks("way to join files")

    def watch_files(self, name: str, path: str, recursive: bool, user: str) -> AsyncGenerator[n.FileChange | None, None]:
        raise self.lacks("way to watch files")

    async def remove_file(self, name: str, path: str, user: str) -> None:
        raise self.lacks("files")

    # Workspaces, volumes, secrets and images.

    async def create_workspace(self, name: str) -> n.WorkspaceInfo:
        raise self.lacks("workspaces", "workspace")

    async def workspaces(self) -> list[n.WorkspaceInfo]:
        raise self.lacks("workspaces", "workspace")

    async def remove_workspace(self, name: str) -> None:
        raise self.lacks("workspaces", "workspace")

    async def commit_workspace(self, name: str) -> n.WorkspaceCommit:
        raise self.lacks("workspaces", "workspace")

    async def read_workspace_file(self, workspace: str, path: str, version: int) -> bytes:
        raise self.lacks("workspaces", "workspace")

    async def workspace_versions(self, workspace: str) -> list[n.WorkspaceVersion]:
        raise self.lacks("workspaces", "workspace")

    async def workspace_files(self, workspace: str, path: str, version: int) -> list[n.WorkspaceFile]:
        raise self.lacks("workspaces", "workspace")

    async def diff_workspace(self, workspace: str, old: int, new: int) -> list[n.WorkspaceChange]:
        raise self.lacks("workspaces", "workspace")

    async def restore_workspace(self, workspace: str, version: int) -> n.WorkspaceVersion:
        raise self.lacks("workspaces", "workspace")

    async def create_volume(self, name: str, size_mib: int | None) -> n.VolumeInfo:
        raise self.lacks("volumes in this package", "volumes")

    async def volumes(self) -> list[n.VolumeInfo]:
        raise self.lacks("volumes in this package", "volumes")

    async def get_volume(self, name: str) -> n.VolumeInfo:
        raise self.lacks("volumes in this package", "volumes")

    async def remove_volume(self, name: str) -> None:
        raise self.lacks("volumes in this package", "volumes")

    async def list_volume_files(self, volume: str, path: str, depth: int) -> list[n.VolumeFile]:
        raise self.lacks("volumes in this package", "volumes")

    async def stat_volume_file(self, volume: str, path: str) -> n.VolumeFile:
        raise self.lacks("volumes in this package", "volumes")

    async def read_volume_file(self, volume: str, path: str) -> bytes:
        raise self.lacks("volumes in this package", "volumes")

    def stream_volume_file(self, volume: str, path: str) -> AsyncGenerator[bytes, None]:
        raise self.lacks("volumes in this package", "volumes")

    async def write_volume_file(
        self, volume: str, path: str, data: bytes | AsyncIterable[bytes], force: bool, attributes: Mapping[str, int]
    ) -> n.VolumeFile:
        raise self.lacks("volumes in this package", "volumes")

    async def make_volume_directory(self, volume: str, path: str, force: bool, attributes: Mapping[str, int]) -> n.VolumeFile:
        raise self.lacks("volumes in this package", "volumes")

    async def set_volume_attributes(self, volume: str, path: str, attributes: Mapping[str, int]) -> n.VolumeFile:
        raise self.lacks("volumes in this package", "volumes")

    async def remove_volume_file(self, volume: str, path: str) -> None:
        raise self.lacks("volumes in this package", "volumes")

    async def put_secret(self, name: str, value: str | bytes, hosts: Sequence[str]) -> n.SecretInfo:
        raise self.lacks("secrets", "secrets")

    async def secrets(self) -> list[n.SecretInfo]:
        raise self.lacks("secrets", "secrets")

    async def remove_secret(self, name: str) -> None:
        raise self.lacks("secrets", "secrets")

    async def pull_image(self, ref: str, username: str, password: str, platform: str, insecure: bool) -> n.ImageInfo:
        raise self.lacks("way to pull images", "image")

    async def images(self) -> list[n.ImageInfo]:
        raise self.lacks("list of images", "image")

    async def templates(self) -> list[n.TemplateInfo]:
        raise self.lacks("list of templates", "template")
