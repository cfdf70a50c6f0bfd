# Generated from brig/_async/_e2b.py by tools/unasync.py. Edit that file.
"""The backend for E2B's protocol: E2B's cloud, Brig's E2B API, or another service."""

from __future__ import annotations

import base64
import os
import uuid
from collections.abc import Generator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import httpx

from .. import _address as address
from .. import _e2b as wire
from .. import _nouns as n
from .._errors import (
    AlreadyExistsError,
    AuthenticationError,
    BrigError,
    FailedPreconditionError,
    NotFoundError,
    SandboxUnavailable,
    TimedOutError,
)
from .._wire import Lines
from ._backend import Backend
from ._thread import BackgroundTask

_GRACE = 5.0  # seconds for the sandbox to report a timeout
_INPUT_SIZE = 512 << 10  # bytes of standard input in one request
_LANGUAGES = {"python": ("python3", "-c"), "javascript": ("node", "-e"), "bash": ("bash", "-c")}


class E2B(Backend):
    """A service with E2B's protocol.

    Its sandboxes have IDs and no names, so the client stores the name in a label. The
    service does not keep ended sandboxes. The client knows those that it has stopped.
    """

    protocol = "E2B's protocol"

    def __init__(self, key: str, templates: Mapping[str, str], *, http: httpx.Client | None, insecure_http: bool) -> None:
        self._key = key or os.environ.get("E2B_API_KEY", "")
        if not self._key:
            raise AuthenticationError("there is no API key for E2B", hint="give key, or set E2B_API_KEY")
        self._domain = os.environ.get("E2B_DOMAIN") or "e2b.app"
        self._api = (os.environ.get("E2B_API_URL") or f"https://api.{self._domain}").rstrip("/")
        self._boxes = (os.environ.get("E2B_SANDBOX_URL") or "").rstrip("/")
        self._templates = wire.templates(os.environ.get("BRIG_TEMPLATES", "")) | dict(templates)
        for field, url in (("E2B_API_URL", self._api), ("E2B_SANDBOX_URL", self._boxes)):
            address.check(field, url, insecure_http)
        proxied = address.by_proxy(self._api, self._boxes)
        self._http = http or httpx.Client(timeout=httpx.Timeout(60.0, connect=10.0), trust_env=proxied)
        self._own = http is None
        self._known: dict[str, wire.Body] = {}  # by name, with addresses and tokens
        self._ended: dict[str, n.SandboxInfo] = {}

    def close(self) -> None:
        """Close the connections."""
        if self._own:
            self._http.close()

    def _send(self, method: str, url: str, **options: Any) -> httpx.Response:
        try:
            # The caller's httpx client would send X-API-Key to the target of a redirect.
            answer = self._http.request(method, url, follow_redirects=False, **options)
        except httpx.HTTPError as e:
            raise SandboxUnavailable(f"the E2B service cannot be reached: {e}", hint="check E2B_API_URL and E2B_DOMAIN") from e
        if answer.is_success:
            return answer
        raise wire.refusal(answer.status_code, answer.content)

    def _control(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._send(method, self._api + path, headers={"X-API-Key": self._key}, **options)

    def _box(self, name: str) -> wire.Body:
        """Return the address and tokens of a sandbox."""
        if name in self._ended:
            raise FailedPreconditionError(f"the sandbox {name} has ended", hint="create another one")
        if name not in self._known:
            info = self.info(name)
            answer = self._control("POST", f"/sandboxes/{info.id}/connect", json={"timeout": 1})
            self._known[name] = answer.json()
        return self._known[name]

    def _service(self, box: wire.Body, port: int) -> tuple[str, dict[str, str]]:
        """Return the address of a service of a sandbox, and the headers that authorize its use."""
        headers = {"E2b-Sandbox-Id": box["sandboxID"], "E2b-Sandbox-Port": str(port)}
        if token := box.get("envdAccessToken"):
            headers["X-Access-Token"] = token
        if token := box.get("trafficAccessToken"):
            headers["E2B-Traffic-Access-Token"] = token
        domain = box.get("domain") or self._domain
        return self._boxes or f"https://{port}-{box['sandboxID']}.{domain}", headers

    def _envd(self, name: str, method: str, path: str, *, user: str = "", **options: Any) -> httpx.Response:
        base, headers = self._service(self._box(name), wire.ENVD)
        headers |= {"Authorization": _account(user), **options.pop("headers", {})}
        return self._send(method, base + path, headers=headers, **options)

    # Sandboxes.

    def create(self, spec: n.SandboxSpec) -> n.SandboxInfo:
        name = spec.name or f"sb-{uuid.uuid4().hex[:8]}"
        body = wire.spec(replace(spec, name=name), self._templates)
        if spec.name and (name in self._ended or self._find(name) is not None):
            raise AlreadyExistsError(f"the sandbox {name} exists already", field="name", hint="remove it, or choose another name")
        box = (self._control("POST", "/sandboxes", json=body)).json()
        self._known[name] = box
        try:
            info = wire.sandbox((self._control("GET", f"/sandboxes/{box['sandboxID']}")).json())
            for field, has, wants in (
                ("memory_mib", info.memory_mib, spec.memory_mib),
                ("cpus", info.cpus, spec.cpus),
            ):
                if has and wants and has < wants:
                    raise FailedPreconditionError(
                        f"sandboxes of this template have only {has}, and not {wants}",
                        field=field,
                        hint="give a smaller value, or another template",
                    )
        except BaseException:
            del self._known[name]
            self._control("DELETE", f"/sandboxes/{box['sandboxID']}")
            raise
        return info

    def _find(self, name: str) -> n.SandboxInfo | None:
        # A name is only a label, so another client's sandbox can have the same one.
        known = self._known.get(name, {}).get("sandboxID")
        named = self._running({wire.NAME_LABEL: name})
        return next((s for s in named if s.name == name and known in (None, s.id)), None)

    def _running(self, labels: Mapping[str, str]) -> list[n.SandboxInfo]:
        query: dict[str, str] = {"state": "running", "limit": "100"}
        if labels:
            query["metadata"] = str(httpx.QueryParams(dict(labels)))
        out: list[n.SandboxInfo] = []
        while True:
            answer = self._control("GET", "/v2/sandboxes", params=query)
            out += [wire.sandbox(b) for b in answer.json()]
            if not (following := answer.headers.get("X-Next-Token")):
                return out
            query["nextToken"] = following

    def info(self, name: str) -> n.SandboxInfo:
        if name in self._ended:
            return self._ended[name]
        info = self._find(name)
        if info is None:
            raise NotFoundError(f"there is no sandbox {name}")
        return info

    def sandboxes(self, labels: Mapping[str, str], state: str) -> list[n.SandboxInfo]:
        ended = [s for s in self._ended.values() if all(s.labels.get(k) == v for k, v in labels.items())]
        return [s for s in (*self._running(labels), *ended) if state in ("", s.state)]

    def stop(self, name: str, grace: float | None) -> None:
        if grace is not None:
            raise self.lacks("time of grace", "grace")
        self.kill(name)

    def kill(self, name: str) -> None:
        if name in self._ended:
            return
        info = self.info(name)
        self._control("DELETE", f"/sandboxes/{info.id}")
        self._known.pop(name, None)
        self._ended[name] = replace(info, state="stopped", expires="")

    def remove(self, name: str) -> None:
        if self._ended.pop(name, None) is None:
            self.kill(name)
            del self._ended[name]

    def extend(self, name: str, ttl: float) -> n.SandboxInfo:
        box = self._box(name)
        self._control("POST", f"/sandboxes/{box['sandboxID']}/timeout", json={"timeout": round(ttl)})
        return self.info(name)

    def logs(self, name: str, tail: int | None, times: bool) -> str:
        if times:
            raise self.lacks("times in logs", "times")
        info = self.info(name)
        query = {"direction": "forward", "limit": "1000"}
        lines: list[str] = []
        while True:
            page = (self._control("GET", f"/v2/sandboxes/{info.id}/logs", params=query)).json()["logs"]
            lines += [line["message"] for line in page]
            if len(page) < 1000:
                break
            query["cursor"] = str(wire.millis(page[-1]["timestamp"]) + 1)
        if tail is not None:
            lines = lines[len(lines) - min(tail, len(lines)) :]
        return "".join(line + "\n" for line in lines)

    # Programs.

    def exec(self, name: str, command: n.Command) -> n.ExecResult:
        with closing(self.stream(name, command)) as events:
            for event in events:
                if isinstance(event, n.ExecResult):
                    return event
        raise SandboxUnavailable("the connection ended before the result")

    def stream(self, name: str, command: n.Command) -> Generator[n.Chunk | n.ExecResult, None, None]:
        if command.survive:
            raise self.lacks("commands that survive their caller", "survive")
        base, headers = self._service(self._box(name), wire.ENVD)
        headers |= {
            "Authorization": _account(command.user),
            "Content-Type": "application/connect+json",
            "Connect-Protocol-Version": "1",
        }
        silence: float | None = None
        if command.timeout is not None:
            headers["Connect-Timeout-Ms"] = str(round(command.timeout * 1000))
            silence = command.timeout + _GRACE
        messages, output = wire.Envelopes(), wire.Output()
        sender: BackgroundTask | None = None
        try:
            with self._http.stream(
                "POST",
                f"{base}/process.Process/Start",
                follow_redirects=False,
                headers=headers,
                content=wire.envelope(wire.start(command)),
                timeout=httpx.Timeout(silence, connect=10.0),
            ) as answer:
                if not answer.is_success:
                    raise wire.refusal(answer.status_code, answer.read())
                for data in answer.iter_raw():
                    for message in messages.feed(data):
                        event = message.get("event", {})
                        if "start" in event and command.stdin is not None:
                            # Send input concurrently: a process that writes before it has read
                            # all of it blocks until its output is read.
                            sender = BackgroundTask(partial(self._send_input, name, int(event["start"]["pid"]), command.stdin))
                        for chunk in output.take(event):
                            yield chunk
                        if "end" in event:
                            if sender is not None:
                                sender.wait()
                            yield output.ended(event["end"])
                            return
        except (TimedOutError, httpx.ReadTimeout):
            yield output.timed_out()
            return
        except httpx.HTTPError as e:
            raise SandboxUnavailable(f"the connection to the sandbox is lost: {e}") from e
        finally:
            if sender is not None:
                sender.cancel()
        raise SandboxUnavailable("the connection ended before the result")

    def _send_input(self, name: str, pid: int, stdin: str | bytes) -> None:
        """Send standard input to a process until all is sent or the process reads no more."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        selector = {"process": {"pid": pid}}
        patient = httpx.Timeout(None, connect=10.0)  # the process may read late
        try:
            for at in range(0, len(data), _INPUT_SIZE):
                part = {"input": {"stdin": base64.b64encode(data[at : at + _INPUT_SIZE]).decode()}}
                self._envd(name, "POST", "/process.Process/SendInput", json=selector | part, timeout=patient)
            self._envd(name, "POST", "/process.Process/CloseStdin", json=selector)
        except SandboxUnavailable:
            with suppress(BrigError):  # otherwise the process would wait for more
                self._envd(name, "POST", "/process.Process/CloseStdin", json=selector)
            raise
        except BrigError:
            return  # the process has ended, or reads no more

    def run(self, program: n.Program) -> n.RunResult:
        if program.arguments is not None:
            raise self.lacks("arguments of a program", "arguments")
        if program.grace is not None:
            raise self.lacks("time of grace", "grace")
        argv = program.argv
        if program.code is not None:
            if program.language not in _LANGUAGES:
                raise self.lacks(f"one-shots in {program.language}", "language")
            argv = (*_LANGUAGES[program.language], program.code)
        box = self.create(program.spec)
        try:
            for path, content in program.files.items():
                data = content.encode() if isinstance(content, str) else content
                self.write_file(box.name, path, data, None, "")
            command = n.Command(argv, timeout=program.timeout, stdin=program.stdin)
            result = self.exec(box.name, command)
        finally:
            with suppress(BrigError):  # the sandbox ends with its lease
                self.remove(box.name)
        return n.RunResult(**vars(result), sandbox=box.name, provider="e2b")

    def _interpreter(self, name: str, method: str, path: str, **options: Any) -> httpx.Response:
        base, headers = self._service(self._box(name), wire.INTERPRETER)
        return self._send(method, base + path, headers=headers, **options)

    def create_context(self, name: str, language: str, cwd: str, env: Mapping[str, str]) -> str:
        if env:
            raise self.lacks("environment of a context", "env")
        body = {"language": language} | ({"cwd": cwd} if cwd else {})
        return str((self._interpreter(name, "POST", "/contexts", json=body)).json()["id"])

    def run_code(
        self, name: str, code: str, language: str, context: str, timeout: float | None, env: Mapping[str, str]
    ) -> n.CodeResult:
        base, headers = self._service(self._box(name), wire.INTERPRETER)
        body: wire.Body = {"code": code, "env_vars": dict(env)} | ({"context_id": context} if context else {"language": language})
        lines, cell = Lines(), wire.Cell(context)
        try:
            with self._http.stream(
                "POST",
                f"{base}/execute",
                follow_redirects=False,
                headers=headers,
                json=body,
                timeout=httpx.Timeout(timeout, connect=10.0),
            ) as answer:
                if not answer.is_success:
                    raise wire.refusal(answer.status_code, answer.read())
                for data in answer.iter_raw():
                    for line in lines.feed(data):
                        cell.take(line)
        except httpx.ReadTimeout:
            return cell.result(timed_out=True)
        except httpx.HTTPError as e:
            raise SandboxUnavailable(f"the connection to the interpreter is lost: {e}") from e
        return cell.result()

    def restart_context(self, name: str, context: str) -> None:
        self._interpreter(name, "POST", f"/contexts/{context}/restart")

    def remove_context(self, name: str, context: str) -> None:
        self._interpreter(name, "DELETE", f"/contexts/{context}")

    # Files.

    def read_file(self, name: str, path: str, user: str, offset: int, length: int | None) -> bytes:
        if offset or length is not None:
            raise self.lacks("parts of files", "offset" if offset else "length")
        return (self._envd(name, "GET", "/files", params=_at(path, user))).content

    def write_file(self, name: str, path: str, data: bytes, mode: int | None, user: str) -> n.FileInfo:
        if mode is not None:
            raise self.lacks("permissions of a file that is written", "mode")
        headers = {"Content-Type": "application/octet-stream"}
        self._envd(name, "POST", "/files", params=_at(path, user), content=data, headers=headers)
        return self.stat_file(name, path, user)

    def _entry(self, name: str, call: str, body: wire.Body, user: str) -> n.FileInfo:
        answer = self._envd(name, "POST", f"/filesystem.Filesystem/{call}", json=body, user=user)
        return wire.entry(answer.json()["entry"])

    def list_files(self, name: str, path: str, depth: int, user: str) -> list[n.FileInfo]:
        body = {"path": path, "depth": depth}
        answer = self._envd(name, "POST", "/filesystem.Filesystem/ListDir", json=body, user=user)
        return [wire.entry(b) for b in answer.json().get("entries", [])]

    def stat_file(self, name: str, path: str, user: str) -> n.FileInfo:
        return self._entry(name, "Stat", {"path": path}, user)

    def make_directory(self, name: str, path: str, user: str) -> n.FileInfo:
        return self._entry(name, "MakeDir", {"path": path}, user)

    def move_file(self, name: str, source: str, target: str, user: str) -> n.FileInfo:
        return self._entry(name, "Move", {"source": source, "destination": target}, user)

    def remove_file(self, name: str, path: str, user: str) -> None:
        self._envd(name, "POST", "/filesystem.Filesystem/Remove", json={"path": path}, user=user)


def _account(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user or 'user'}:".encode()).decode()


def _at(path: str, user: str) -> dict[str, str]:
    return {"path": path, "username": user or "user"}
