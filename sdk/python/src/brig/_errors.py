"""The errors: one class for each kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "AlreadyExistsError",
    "AuthenticationError",
    "BrigError",
    "CanceledError",
    "CreationFailedError",
    "FailedPreconditionError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfMemoryError",
    "PermissionDeniedError",
    "PolicyBlockedError",
    "RateLimitedError",
    "SandboxUnavailable",
    "TimedOutError",
    "UnsupportedError",
]


class BrigError(RuntimeError):
    """An error that Brig has reported.

    The message describes the problem, ``hint`` the fix, and ``field`` the parameter
    that is wrong, if there is one. ``code`` never changes. A program that fails is
    not an error: its result has the exit code.
    """

    kind = "internal"
    code = "SB018"

    def __init__(
        self,
        message: str,
        *,
        kind: str | None = None,
        code: str | None = None,
        field: str = "",
        hint: str = "",
        fields: Sequence[Mapping[str, str]] = (),
        retry_after: float | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind or type(self).kind
        self.code = code or type(self).code
        self.field = field
        self.hint = hint
        self.fields = tuple(fields)
        #: The seconds after which to try again, if the server sent them.
        self.retry_after = retry_after
        #: The status of the HTTP response, if there was one.
        self.status = status

    def __str__(self) -> str:
        text = f"{self.message} ({self.code})"
        if self.field:
            text = f"{self.field}: {text}"
        if self.hint:
            text = f"{text}\nhint: {self.hint}"
        return text


class SandboxUnavailable(BrigError):
    """No server or provider of sandboxes can be reached."""

    kind, code = "connection_failed", "SB003"


class InvalidArgumentError(BrigError):
    """A parameter is invalid; ``field`` names it."""

    kind, code = "invalid_argument", "SB010"


class AuthenticationError(BrigError):
    """The API key is missing, invalid or has expired."""

    kind, code = "unauthenticated", "SB011"


class PermissionDeniedError(BrigError):
    """The API key may not do this."""

    kind, code = "permission_denied", "SB012"


class NotFoundError(BrigError):
    """The object does not exist, or belongs to another tenant."""

    kind, code = "not_found", "SB013"


class AlreadyExistsError(BrigError):
    """The name is taken. Nothing has changed."""

    kind, code = "already_exists", "SB014"


class FailedPreconditionError(BrigError):
    """The call is not possible in this state, for example in a sandbox that ended."""

    kind, code = "failed_precondition", "SB015"


class UnsupportedError(BrigError):
    """The server, the provider or the protocol does not support this."""

    kind, code = "unimplemented", "SB016"


class RateLimitedError(BrigError):
    """A quota or the capacity is reached; ``retry_after`` may have the time to wait."""

    kind, code = "rate_limited", "SB008"


class PolicyBlockedError(BrigError):
    """A policy of the operator rejects it."""

    kind, code = "blocked_by_policy", "SB007"


class TimedOutError(BrigError):
    """The call exceeded its timeout."""

    kind, code = "timeout", "SB005"


class OutOfMemoryError(BrigError):
    """The sandbox used more memory than its limit."""

    kind, code = "out_of_memory", "SB006"


class CreationFailedError(BrigError):
    """The sandbox could not be created."""

    kind, code = "creation_failed", "SB004"


class CanceledError(BrigError):
    """The call was cancelled."""

    kind, code = "canceled", "SB017"


_KINDS: dict[str, type[BrigError]] = {
    cls.kind: cls
    for cls in (
        SandboxUnavailable,
        InvalidArgumentError,
        AuthenticationError,
        PermissionDeniedError,
        NotFoundError,
        AlreadyExistsError,
        FailedPreconditionError,
        UnsupportedError,
        RateLimitedError,
        PolicyBlockedError,
        TimedOutError,
        OutOfMemoryError,
        CreationFailedError,
        CanceledError,
    )
}
_KINDS["not_initialized"] = SandboxUnavailable
_KINDS["provider_unavailable"] = SandboxUnavailable
_KINDS["invalid_config"] = InvalidArgumentError


#: Fields of REST, and the parameters that set them if their names differ.
_PARAMETERS = {
    "timeout_ms": "timeout",
    "ttl_ms": "ttl",
    "pause_after_ms": "pause_after",
    "freeze_after_ms": "freeze_after",
    "grace_ms": "grace",
    "limits.memory": "memory_mib",
    "limits.disk": "disk_mib",
    "limits.cpus": "cpus",
    "limits.processes": "processes",
    "limits.open_files": "open_files",
    "limits.output": "output_kib",
    "default_user": "user",
    "default_cwd": "cwd",
    "placement.provider": "provider",
    "placement": "provider",
    "placement.prefer": "prefer",
    "placement.regions": "regions",
    "source_paths": "sources",
    "destination": "target",
    "from": "source",
    "to": "target",
    "egress.rules": "egress",
    "egress.bandwidth": "bandwidth",
    "stdin_b64": "stdin",
    "value_b64": "value",
    "content_b64": "content",
    "command": "cmd",
    "shell": "script",
}


def _renames(names: list[str]) -> re.Pattern[str]:
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w.])(?:{words})(?!\w)")


_FIELD = _renames(list(_PARAMETERS))
#: In a text, a name without a dot or an underscore may be a plain word.
_IN_TEXT = _renames([name for name in _PARAMETERS if not name.isalpha()])


def parameter(field: str, names: Mapping[str, str] | None = None) -> str:
    """Return the parameter that sets a field of REST. ``names`` has those that only one call has."""
    first = re.match(r"[a-z_]*", field)
    if names and first and first[0] in names:
        return names[first[0]] + field[first.end() :]
    return _FIELD.sub(lambda m: _PARAMETERS[m[0]], field, count=1)


def in_python(text: str) -> str:
    """Return a text from the REST API in which parameters replace the names of fields."""
    return _IN_TEXT.sub(lambda m: _PARAMETERS[m[0]], text)


def to_error(
    error: Mapping[str, Any],
    *,
    status: int | None = None,
    retry_after: float | None = None,
    names: Mapping[str, str] | None = None,
) -> BrigError:
    """Return the error in a response of the REST API, with this package's names of parameters."""
    kind = str(error.get("kind", ""))
    return _KINDS.get(kind, BrigError)(
        str(error.get("message", "")),
        kind=kind or None,
        code=str(error.get("code", "")) or None,
        field=parameter(str(error.get("field", "")), names),
        hint=in_python(str(error.get("hint", ""))),
        fields=[{**f, "field": parameter(str(f.get("field", "")), names)} for f in error.get("fields") or ()],
        status=status,
        retry_after=retry_after,
    )


def of_kind(kind: str, message: str, *, hint: str = "", field: str = "", status: int | None = None) -> BrigError:
    """Return an error of a kind, for a response of another protocol."""
    return _KINDS.get(kind, BrigError)(message, hint=hint, field=field, status=status)
