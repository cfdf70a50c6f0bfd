"""The backend for Brig's REST API."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from .. import _address as address
from .. import _nouns as n
from .. import _wire as wire
from .._engine import SOCKET, Engine
from .._errors import InvalidArgumentError, RateLimitedError, SandboxUnavailable, to_error
from ._backend import Backend
from ._connection import Connection
from ._socket import SocketTransport
from ._thread import in_thread, pause

if TYPE_CHECKING:  # only type checkers need the documents
    from .. import _documents as d

#: Seconds without data after which a stream is lost. Servers send a keepalive every 15 seconds.
_SILENCE = 60.0
_CONNECT_TIME = 10.0
#: The parameters of a comparison of versions, whose names in REST are those of other parameters in other calls.
_VERSIONS = {"from": "old", "to": "new"}


class Rest(Backend):
    """A Brig server at a URL, or the server of a data folder through its socket, without a key."""

    protocol = "this server"

    def __init__(
        self,
        url: str,
        key: str,
        *,
        engine: Engine | None,
        folder: Path | None,
        http: httpx.AsyncClient | None,
        insecure_http: bool,
        patience: float,
    ) -> None:
        self._patience = patience
        self._key, self._engine, self._begun = key, engine, engine is None
        self._own = http is None
        # No timeout for responses: a call lasts as long as its program, which the server limits.
        timeout = httpx.Timeout(None, connect=_CONNECT_TIME)
        if folder is None:
            address.check("where", url, insecure_http)
            self._url = self._server = url.rstrip("/")
            self._http = http or httpx.AsyncClient(timeout=timeout, trust_env=address.by_proxy(url))
        elif http is None:
            self._url, self._server = "http://localhost", str(folder / SOCKET)
            self._http = httpx.AsyncClient(timeout=timeout, transport=SocketTransport(folder), trust_env=False)
        else:
            raise InvalidArgumentError(
                "the server of a data folder is reached by its socket, and not by this client",
                field="http",
                hint="leave out http, or give the URL of the server and a key",
            )

    async def close(self) -> None:
        """Close the connections, and stop the server if this client has started it."""
        if self._own:
            await self._http.aclose()
        if self._engine is not None:
            await in_thread(self._engine.end)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        stream: bool = False,
        headers: Mapping[str, str] | None = None,
        names: Mapping[str, str] | None = None,
        **options: Any,
    ) -> httpx.Response:
        """Send a request and return its successful response. The caller reads or closes a stream.

        `names` has the parameters of fields that only this call names differently in errors.

        A server at its capacity rejects a call before it starts. The client then retries
        after the time that the server returns, for up to `patience` seconds.
        """
        # A stream cannot be sent twice.
        repeatable = isinstance(options.get("content"), (bytes, str, type(None)))
        end = time.monotonic() + self._patience
        while True:
            try:
                return await self._send_once(method, path, stream=stream, headers=headers, names=names, **options)
            except RateLimitedError as e:
                if not repeatable or e.field != "capacity" or not e.retry_after:
                    raise
                # Add jitter, so that clients that were rejected together do not retry together.
                wait = e.retry_after * random.uniform(1, 1.25)
                if time.monotonic() + wait > end:
                    raise
            await pause(wait)

    async def _send_once(
        self,
        method: str,
        path: str,
        *,
        stream: bool,
        headers: Mapping[str, str] | None,
        names: Mapping[str, str] | None,
        **options: Any,
    ) -> httpx.Response:
        for attempt in (1, 2):
            if self._engine is not None and not self._begun:
                await in_thread(self._engine.begin)
                self._begun = True
            signed = dict(headers or {}) | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
            request = self._http.build_request(method, self._url + path, headers=signed, **options)
            try:
                # Never follow redirects, even if the caller's httpx client does: they would
                # receive the key and the body.
                answer = await self._http.send(request, stream=stream, follow_redirects=False)
                break
            except httpx.ConnectError as e:
                # The server has not received the request. Start a server that has ended again.
                if self._engine is None or attempt == 2:
                    raise self._lost("cannot reach the server", e) from e
                self._begun = False
            except httpx.HTTPError as e:
                raise self._lost("the connection to the server is lost", e) from e
        if answer.is_success or answer.status_code == 101:
            return answer
        content = await answer.aread()
        await answer.aclose()
        raise wire.refusal(answer.status_code, content, answer.headers.get("Retry-After"), self._server, names)

    def _lost(self, message: str, e: Exception) -> SandboxUnavailable:
        return SandboxUnavailable(f"{message}: {e}", hint=f"check that brig serve runs at {self._server}")

    async def _call(
        self,
        method: str,
        *parts: str | int,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> Any:
        answer = await self._send(method, wire.path(*parts), json=body, params=query, names=names)
        return answer.json() if answer.content else None

    async def _events(
        self, path: str, method: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> AsyncGenerator[Any, None]:
        """Yield the events of a response. The result is the last one."""
        answer = await self._send(
            method,
            path,
            stream=True,
            json=body,
            params=query,
            headers={"Accept": wire.NDJSON},
            timeout=httpx.Timeout(None, connect=_CONNECT_TIME, read=_SILENCE),
        )
        lines = wire.Lines()
        try:
            async for data in answer.aiter_raw():
                for event in lines.feed(data):
                    if event["event"] == "error":
                        raise to_error(event["error"])
                    yield event
                    if event["event"] == "result":
                        return
        except httpx.HTTPError as e:
            raise self._lost("the connection to the server is lost", e) from e
        finally:
            await answer.aclose()
        raise SandboxUnavailable("the connection ended before the result")

    async def _outputs(
        self, path: str, method: str, body: Any, result: Callable[[Any], n.ExecResult]
    ) -> AsyncGenerator[n.Chunk | n.ExecResult, None]:
        async with aclosing(self._events(path, method, body)) as events:
            event: d.ResultEvent | d.RunAnswerEvent
            async for event in events:
                if event["event"] == "result":
                    yield result(event)
                elif event["event"] == "stdout" or event["event"] == "stderr":
                    yield wire.chunk(event["event"], event)

    async def _pull_missing(self, image: str | None, e: InvalidArgumentError) -> None:
        """Pull the image that a request needs, like docker run, if this client's own server rejects it."""
        if self._engine is None or not image or e.field != "image":
            raise e
        await self.pull_image(image, "", "", "", False)

    # Sandboxes.

    async def create(self, spec: n.SandboxSpec) -> n.SandboxInfo:
        body = wire.spec(spec)
        try:
            return wire.sandbox(await self._call("POST", "sandboxes", body=body, names=wire.MAIN))
        except InvalidArgumentError as e:
            await self._pull_missing(spec.image, e)
        return wire.sandbox(await self._call("POST", "sandboxes", body=body, names=wire.MAIN))

    async def info(self, name: str) -> n.SandboxInfo:
        return wire.sandbox(await self._call("GET", "sandboxes", name))

    async def sandboxes(self, labels: Mapping[str, str], state: str) -> list[n.SandboxInfo]:
        query: dict[str, Any] = {"limit": 200}
        if labels:
            query["label"] = [f"{k}={v}" for k, v in labels.items()]
        if state:
            query["state"] = state
        out: list[n.SandboxInfo] = []
        while True:
            page: d.Sandboxes = await self._call("GET", "sandboxes", query=query)
            out += [wire.sandbox(b) for b in page["sandboxes"]]
            if not page["next_cursor"]:
                return out
            query["cursor"] = page["next_cursor"]

    async def fork(self, name: str, fork: n.Fork) -> list[n.SandboxInfo]:
        answer: d.Copies = await self._call("POST", "sandboxes", name, "fork", body=wire.fork(fork))
        return [wire.sandbox(b) for b in answer["sandboxes"]]

    async def pause(self, name: str, files_only: bool) -> n.SandboxInfo:
        body: d.PauseRequest = {"files_only": True} if files_only else {}
        return wire.sandbox(await self._call("POST", "sandboxes", name, "pause", body=body))

    async def resume(self, name: str) -> n.SandboxInfo:
        return wire.sandbox(await self._call("POST", "sandboxes", name, "resume", body={}))

    async def stop(self, name: str, grace: float | None) -> None:
        body: d.StopRequest = {} if grace is None else {"grace_ms": round(grace * 1000)}
        await self._call("POST", "sandboxes", name, "stop", body=body)

    async def kill(self, name: str) -> None:
        await self._call("POST", "sandboxes", name, "kill", body={})

    async def remove(self, name: str) -> None:
        await self._call("DELETE", "sandboxes", name)

    async def extend(self, name: str, ttl: float) -> n.SandboxInfo:
        body: d.ExtendRequest = {"ttl_ms": wire.millis(ttl, "ttl")}
        return wire.sandbox(await self._call("POST", "sandboxes", name, "extend", body=body))

    async def set_egress(self, name: str, rules: Sequence[str | n.EgressRule], bandwidth: int | None) -> None:
        body: d.EgressChange = wire.egress(rules, bandwidth)
        await self._call("PUT", "sandboxes", name, "egress", body=body)

    async def usage(self, name: str) -> n.SandboxUsage:
        return wire.usage(await self._call("GET", "sandboxes", name, "usage"))

    async def attest(self, name: str) -> n.SandboxInfo:
        return wire.sandbox(await self._call("POST", "sandboxes", name, "attest", body={}))

    async def logs(self, name: str, tail: int | None, times: bool) -> str:
        query = _query(tail=tail, times=times)
        answer = await self._send("GET", wire.path("sandboxes", name, "logs"), params=query)
        return answer.content.decode("utf-8", "replace")

    async def follow_logs(self, name: str, tail: int | None, times: bool) -> AsyncGenerator[str, None]:
        query = _query(follow=True, tail=tail, times=times)
        async with aclosing(self._events(wire.path("sandboxes", name, "logs"), "GET", query=query)) as events:
            event: d.LogEndEvent
            async for event in events:
                if event["event"] == "log":
                    yield wire.chunk("stdout", event).text

    # Programs.

    async def exec(self, name: str, command: n.Command) -> n.ExecResult:
        return wire.result(await self._call("POST", "sandboxes", name, "exec", body=wire.command(command)))

    def stream(self, name: str, command: n.Command) -> AsyncGenerator[n.Chunk | n.ExecResult, None]:
        body = {**wire.command(command), "stream": True}
        return self._outputs(wire.path("sandboxes", name, "exec"), "POST", body, wire.result)

    async def run(self, program: n.Program) -> n.RunResult:
        body = wire.program(program)
        try:
            return wire.run_result(await self._call("POST", "run", body=body))
        except InvalidArgumentError as e:
            await self._pull_missing(program.spec.image, e)
        return wire.run_result(await self._call("POST", "run", body=body))

    async def stream_run(self, program: n.Program) -> AsyncGenerator[n.Chunk | n.ExecResult, None]:
        body = {**wire.program(program), "stream": True}
        for attempt in (1, 2):
            try:
                async with aclosing(self._outputs(wire.path("run"), "POST", body, wire.run_result)) as events:
                    async for event in events:
                        yield event
                return
            except InvalidArgumentError as e:  # the server has not begun
                if attempt == 2:
                    raise
                await self._pull_missing(program.spec.image, e)

    async def runs(self, status: str) -> list[n.RunSummary]:
        query: dict[str, Any] = {"limit": 200} | ({"status": status} if status else {})
        out: list[n.RunSummary] = []
        while True:
            page: d.Runs = await self._call("GET", "runs", query=query)
            out += [wire.run_summary(b) for b in page["runs"]]
            if not page["next_cursor"]:
                return out
            query["cursor"] = page["next_cursor"]

    async def run_result(self, name: str) -> n.RunResult:
        return wire.run_result(await self._call("GET", "runs", name))

    async def contexts(self, name: str) -> list[n.ContextInfo]:
        answer: d.Contexts = await self._call("GET", "sandboxes", name, "contexts")
        return [wire.context(b) for b in answer["contexts"]]

    async def executions(self, name: str) -> list[n.Execution]:
        answer: d.Executions = await self._call("GET", "sandboxes", name, "execs")
        return [wire.execution(b) for b in answer["execs"]]

    async def execution(self, name: str, id: str) -> n.Execution:
        return wire.execution(await self._call("GET", "sandboxes", name, "execs", id))

    async def create_context(self, name: str, language: str, cwd: str, env: Mapping[str, str]) -> str:
        body: d.ContextRequest = {"language": language, "env": dict(env)}
        if cwd:
            body["cwd"] = cwd
        context: d.Context = await self._call("POST", "sandboxes", name, "contexts", body=body)
        return context["id"]

    async def run_code(
        self, name: str, code: str, language: str, context: str, timeout: float | None, env: Mapping[str, str]
    ) -> n.CodeResult:
        body = wire.code(code, language, context, timeout, env)
        return wire.code_result(await self._call("POST", "sandboxes", name, "code", body=body))

    async def stream_code(
        self, name: str, code: str, language: str, context: str, timeout: float | None, env: Mapping[str, str]
    ) -> AsyncGenerator[n.Chunk | n.Rich | n.CodeResult, None]:
        body = wire.code(code, language, context, timeout, env)
        async with aclosing(self._events(wire.path("sandboxes", name, "code", "stream"), "POST", body)) as events:
            event: d.CodeAnswerEvent
            async for event in events:
                if event["event"] == "result":
                    yield wire.code_result(event)
                elif event["event"] == "output":
                    yield wire.rich(event)
                elif event["event"] == "stdout" or event["event"] == "stderr":
                    yield wire.chunk(event["event"], event)

    async def interrupt_context(self, name: str, context: str) -> None:
        await self._call("POST", "sandboxes", name, "contexts", context, "interrupt")

    async def restart_context(self, name: str, context: str) -> None:
        await self._call("POST", "sandboxes", name, "contexts", context, "restart")

    async def remove_context(self, name: str, context: str) -> None:
        await self._call("DELETE", "sandboxes", name, "contexts", context)

    async def start(self, name: str, command: n.Command) -> int:
        process: d.Process = await self._call("POST", "sandboxes", name, "processes", body=wire.process(command))
        return process["pid"]

    async def processes(self, name: str) -> list[n.ProcessInfo]:
        answer: d.Processes = await self._call("GET", "sandboxes", name, "processes")
        return [wire.process_info(b) for b in answer["processes"]]

    def attach(self, name: str, pid: int, offset: int) -> AsyncGenerator[n.Chunk | n.ExecResult, None]:
        path = wire.path("sandboxes", name, "processes", pid, "output") + (f"?offset={offset}" if offset else "")
        return self._outputs(path, "GET", None, wire.result)

    async def resize(self, name: str, pid: int, terminal: n.Terminal) -> None:
        await self._call("POST", "sandboxes", name, "processes", pid, "resize", body=wire.terminal(terminal))

    async def signal(self, name: str, pid: int, signal: str) -> None:
        body: d.SignalRequest = {"signal": signal}
        await self._call("POST", "sandboxes", name, "processes", pid, "signal", body=body)

    async def write_input(self, name: str, pid: int, data: bytes) -> None:
        await self._send(
            "POST",
            wire.path("sandboxes", name, "processes", pid, "input"),
            content=data,
            headers={"Content-Type": "application/octet-stream"},
        )

    async def close_input(self, name: str, pid: int) -> None:
        await self._call("POST", "sandboxes", name, "processes", pid, "close_input")

    async def connect(self, name: str, port: int) -> Connection:
        answer = await self._send(
            "GET",
            wire.path("sandboxes", name, "ports", port),
            stream=True,
            headers={"Connection": "Upgrade", "Upgrade": "tcp"},
        )
        if answer.status_code != 101:
            await answer.aclose()
            raise SandboxUnavailable(
                "the server did not upgrade the connection",
                hint="if a proxy is in front of the server, let it pass on HTTP upgrades",
            )
        return Connection(answer)

    # Files.

    async def read_file(self, name: str, path: str, user: str, offset: int, length: int | None) -> bytes:
        query = _at(path, user) | _query(offset=offset or None, length=length)
        answer = await self._send("GET", wire.path("sandboxes", name, "files", "content"), params=query)
        return answer.content

    async def write_file(self, name: str, path: str, data: bytes, mode: int | None, user: str) -> n.FileInfo:
        answer = await self._send(
            "PUT",
            wire.path("sandboxes", name, "files", "content"),
            params=_at(path, user) | ({} if mode is None else {"mode": f"{mode:04o}"}),
            content=data,
            headers={"Content-Type": "application/octet-stream"},
        )
        return wire.entry(answer.json())

    async def list_files(self, name: str, path: str, depth: int, user: str) -> list[n.FileInfo]:
        query = _at(path, user) | {"depth": str(depth)}
        entries: d.Entries = await self._call("GET", "sandboxes", name, "files", query=query)
        return [wire.entry(b) for b in entries["entries"]]

    async def stat_file(self, name: str, path: str, user: str) -> n.FileInfo:
        return wire.entry(await self._call("GET", "sandboxes", name, "files", "stat", query=_at(path, user)))

    async def make_directory(self, name: str, path: str, user: str) -> n.FileInfo:
        body: d.MakeDirRequest = {"path": path}
        if user:
            body["user"] = user
        return wire.entry(await self._call("POST", "sandboxes", name, "files", "mkdir", body=body))

    async def move_file(self, name: str, source: str, target: str, user: str) -> n.FileInfo:
        body: d.MoveRequest = {"from": source, "to": target}
        if user:
            body["user"] = user
        return wire.entry(await self._call("POST", "sandboxes", name, "files", "move", body=body))

    async def compose_file(self, name: str, sources: Sequence[str], target: str, user: str) -> n.FileInfo:
        body: d.ComposeRequest = {"source_paths": list(sources), "destination": target}
        if user:
            body["user"] = user
        return wire.entry(await self._call("POST", "sandboxes", name, "files", "compose", body=body))

    async def watch_files(self, name: str, path: str, recursive: bool, user: str) -> AsyncGenerator[n.FileChange | None, None]:
        query = _at(path, user) | _query(recursive=recursive)
        async with aclosing(self._events(wire.path("sandboxes", name, "files", "watch"), "GET", query=query)) as events:
            event: d.WatchEndEvent
            async for event in events:
                if event["event"] == "watching":
                    yield None
                elif event["event"] == "change":
                    yield wire.change(event)

    async def remove_file(self, name: str, path: str, user: str) -> None:
        await self._call("DELETE", "sandboxes", name, "files", query=_at(path, user))

    # Workspaces, volumes, secrets and images.

    async def create_workspace(self, name: str) -> n.WorkspaceInfo:
        body: d.WorkspaceRequest = {"name": name}
        return wire.workspace(await self._call("POST", "workspaces", body=body))

    async def workspaces(self) -> list[n.WorkspaceInfo]:
        answer: d.Workspaces = await self._call("GET", "workspaces")
        return [wire.workspace(b) for b in answer["workspaces"]]

    async def remove_workspace(self, name: str) -> None:
        await self._call("DELETE", "workspaces", name)

    async def commit_workspace(self, name: str) -> n.WorkspaceCommit:
        return wire.commit(await self._call("POST", "sandboxes", name, "commit"))

    async def read_workspace_file(self, workspace: str, path: str, version: int) -> bytes:
        where = wire.path("workspaces", workspace, "versions", version, "files", "content")
        return (await self._send("GET", where, params={"path": path})).content

    async def workspace_versions(self, workspace: str) -> list[n.WorkspaceVersion]:
        answer: d.WorkspaceVersions = await self._call("GET", "workspaces", workspace, "versions")
        return [wire.workspace_version(b) for b in answer["versions"]]

    async def workspace_files(self, workspace: str, path: str, version: int) -> list[n.WorkspaceFile]:
        query = {"path": path} if path else {}
        answer: d.WorkspaceFiles = await self._call("GET", "workspaces", workspace, "versions", version, "files", query=query)
        return [wire.workspace_file(b) for b in answer["files"]]

    async def diff_workspace(self, workspace: str, old: int, new: int) -> list[n.WorkspaceChange]:
        query = {"from": old, "to": new}
        answer: d.WorkspaceDiff = await self._call("GET", "workspaces", workspace, "diff", query=query, names=_VERSIONS)
        return [wire.workspace_change(b) for b in answer["changes"]]

    async def restore_workspace(self, workspace: str, version: int) -> n.WorkspaceVersion:
        body: d.RestoreRequest = {"version": version}
        return wire.workspace_version(await self._call("POST", "workspaces", workspace, "restore", body=body))

    async def create_volume(self, name: str, size_mib: int | None) -> n.VolumeInfo:
        body: d.VolumeRequest = {"name": name}
        if size_mib is not None:
            body["size"] = f"{size_mib}MiB"
        return wire.volume(await self._call("POST", "volumes", body=body, names={"size": "size_mib"}))

    async def volumes(self) -> list[n.VolumeInfo]:
        answer: d.Volumes = await self._call("GET", "volumes")
        return [wire.volume(b) for b in answer["volumes"]]

    async def get_volume(self, name: str) -> n.VolumeInfo:
        return wire.volume(await self._call("GET", "volumes", name))

    async def remove_volume(self, name: str) -> None:
        await self._call("DELETE", "volumes", name)

    async def list_volume_files(self, volume: str, path: str, depth: int) -> list[n.VolumeFile]:
        query = {"path": path, "depth": depth}
        answer: d.VolumeEntries = await self._call("GET", "volumes", volume, "files", query=query)
        return [wire.volume_file(b) for b in answer["entries"]]

    async def stat_volume_file(self, volume: str, path: str) -> n.VolumeFile:
        return wire.volume_file(await self._call("GET", "volumes", volume, "files", "stat", query={"path": path}))

    async def read_volume_file(self, volume: str, path: str) -> bytes:
        where = wire.path("volumes", volume, "files", "content")
        return (await self._send("GET", where, params={"path": path})).content

    async def stream_volume_file(self, volume: str, path: str) -> AsyncGenerator[bytes, None]:
        answer = await self._send(
            "GET",
            wire.path("volumes", volume, "files", "content"),
            stream=True,
            params={"path": path},
            timeout=httpx.Timeout(None, connect=_CONNECT_TIME, read=_SILENCE),
        )
        try:
            async for data in answer.aiter_raw():
                yield data
        except httpx.HTTPError as e:
            raise self._lost("the connection to the server is lost", e) from e
        finally:
            await answer.aclose()

    async def write_volume_file(
        self, volume: str, path: str, data: bytes | AsyncIterable[bytes], force: bool, attributes: Mapping[str, int]
    ) -> n.VolumeFile:
        # The mode of a query has octal digits.
        numbers = {name: f"{number:04o}" if name == "mode" else str(number) for name, number in attributes.items()}
        answer = await self._send(
            "PUT",
            wire.path("volumes", volume, "files", "content"),
            params={"path": path} | numbers | _query(force=force),
            content=data,
            headers={"Content-Type": "application/octet-stream"},
        )
        return wire.volume_file(answer.json())

    async def make_volume_directory(self, volume: str, path: str, force: bool, attributes: Mapping[str, int]) -> n.VolumeFile:
        body = {"path": path, **attributes} | ({"force": True} if force else {})
        return wire.volume_file(await self._call("POST", "volumes", volume, "files", "mkdir", body=body))

    async def set_volume_attributes(self, volume: str, path: str, attributes: Mapping[str, int]) -> n.VolumeFile:
        body = {"path": path, **attributes}
        return wire.volume_file(await self._call("PATCH", "volumes", volume, "files", body=body))

    async def remove_volume_file(self, volume: str, path: str) -> None:
        await self._call("DELETE", "volumes", volume, "files", query={"path": path})

    async def put_secret(self, name: str, value: str | bytes, hosts: Sequence[str]) -> n.SecretInfo:
        return wire.secret(await self._call("PUT", "secrets", name, body=wire.secret_value(value, hosts)))

    async def secrets(self) -> list[n.SecretInfo]:
        answer: d.Secrets = await self._call("GET", "secrets")
        return [wire.secret(b) for b in answer["secrets"]]

    async def remove_secret(self, name: str) -> None:
        await self._call("DELETE", "secrets", name)

    async def pull_image(self, ref: str, username: str, password: str, platform: str, insecure: bool) -> n.ImageInfo:
        return wire.image(await self._call("POST", "images", "pull", body=wire.pull(ref, username, password, platform, insecure)))

    async def images(self) -> list[n.ImageInfo]:
        answer: d.Images = await self._call("GET", "images")
        return [wire.image(b) for b in answer["images"]]

    async def templates(self) -> list[n.TemplateInfo]:
        answer: d.Templates = await self._call("GET", "templates")
        return [wire.template(b) for b in answer["templates"]]


def _query(**values: int | bool | None) -> dict[str, str]:
    """Return the parameters that have a value other than false."""
    given = {name: value for name, value in values.items() if value is not None and value is not False}
    return {name: "true" if value is True else str(value) for name, value in given.items()}


def _at(path: str, user: str) -> dict[str, str]:
    return {"path": path, "user": user} if user else {"path": path}
