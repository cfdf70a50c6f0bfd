"""What can go wrong: one class for each kind of error that Brig has."""

from __future__ import annotations

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
    """An error that Brig has told.

    The message says what is wrong, ``hint`` what to do about it, and ``field``
    which field of the request is at fault, if one is. ``code`` is stable.
    A program that fails is no error: its result says so.
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
        #: After how many seconds it may be otherwise, if that is known.
        self.retry_after = retry_after
        #: The status of the HTTP answer, if there was one.
        self.status = status

    def __str__(self) -> str:
        text = f"{self.message} ({self.code})"
        if self.field:
            text = f"{self.field}: {text}"
        if self.hint:
            text = f"{text}\nhint: {self.hint}"
        return text


class SandboxUnavailable(BrigError):
    """There is nothing here that makes sandboxes, or it cannot be reached."""

    kind, code = "connection_failed", "SB003"


class InvalidArgumentError(BrigError):
    """Something that was asked for cannot be meant; ``field`` names it."""

    kind, code = "invalid_argument", "SB010"


class AuthenticationError(BrigError):
    """The key is missing, wrong, or good no more."""

    kind, code = "unauthenticated", "SB011"


class PermissionDeniedError(BrigError):
    """The key does not go so far."""

    kind, code = "permission_denied", "SB012"


class NotFoundError(BrigError):
    """There is no such thing, or it is another tenant's."""

    kind, code = "not_found", "SB013"


class AlreadyExistsError(BrigError):
    """The name is taken. Nothing has changed."""

    kind, code = "already_exists", "SB014"


class FailedPreconditionError(BrigError):
    """It cannot be done in this state, for example in a sandbox that ended."""

    kind, code = "failed_precondition", "SB015"


class UnsupportedError(BrigError):
    """Whoever was asked cannot do this at all."""

    kind, code = "unimplemented", "SB016"


class RateLimitedError(BrigError):
    """Too much at once: ``retry_after`` may say when there is room."""

    kind, code = "rate_limited", "SB008"


class PolicyBlockedError(BrigError):
    """The operator's rules forbid it."""

    kind, code = "blocked_by_policy", "SB007"


class TimedOutError(BrigError):
    """The service did not come to an end in time."""

    kind, code = "timeout", "SB005"


class OutOfMemoryError(BrigError):
    """There was not enough memory."""

    kind, code = "out_of_memory", "SB006"


class CreationFailedError(BrigError):
    """The sandbox could not be made."""

    kind, code = "creation_failed", "SB004"


class CanceledError(BrigError):
    """Somebody has called it off."""

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


def told(error: Mapping[str, Any], *, status: int | None = None, retry_after: float | None = None) -> BrigError:
    """Make the error that an answer tells of."""
    kind = str(error.get("kind", ""))
    return _KINDS.get(kind, BrigError)(
        str(error.get("message", "")),
        kind=kind or None,
        code=str(error.get("code", "")) or None,
        field=str(error.get("field", "")),
        hint=str(error.get("hint", "")),
        fields=error.get("fields") or (),
        status=status,
        retry_after=retry_after,
    )


def of_kind(kind: str, message: str, *, hint: str = "", field: str = "", status: int | None = None) -> BrigError:
    """Make an error of a kind, for what was told in other words."""
    return _KINDS.get(kind, BrigError)(message, hint=hint, field=field, status=status)
