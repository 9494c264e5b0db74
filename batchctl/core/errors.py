"""Expected errors: each class carries the exit code of the command line and, where there is one, the way out."""

from __future__ import annotations

from enum import StrEnum


class BatchctlError(Exception):
    """An unexpected error."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InputError(BatchctlError):
    """Usage error, or bad input refused before anything was sent."""

    exit_code = 2


class SomeFailedError(BatchctlError):
    """Finished, some items failed."""

    exit_code = 3


class StillOpenError(BatchctlError):
    """`--wait` ran out with work still open."""

    exit_code = 4


class HeldError(BatchctlError):
    """Another process holds this run."""

    exit_code = 5


class SystemicError(BatchctlError):
    """Stopped on a systemic error: credentials, billing, quota, failure rate."""

    exit_code = 6


class StateError(BatchctlError):
    """State file unreadable, newer than this version, or an older copy of itself."""

    exit_code = 7


class UnknownCreateError(BatchctlError):
    """A create is unknown and a person must look."""

    exit_code = 8


class UnexpectedError(BatchctlError):
    """A fault of this program, met in one of several runs; the others go on."""

    exit_code = 1


class StaleStateError(BatchctlError):
    """A conditional update met a row in another state than it asked for."""

    exit_code = 1


class StorageError(BatchctlError):
    """A file could not be written or read (disk full, read-only folder, permissions)."""

    exit_code = 1


class Fault(StrEnum):
    """What a failed provider call means for the caller."""

    RETRY = "retry"  # surely not accepted, and may work later (429, connection refused)
    AMBIGUOUS = "ambiguous"  # may have been accepted (cut connection, timeout, 5xx)
    PERMANENT = "permanent"  # this request will never be accepted
    SYSTEMIC = "systemic"  # account or configuration: stop the run
    TOO_LARGE = "too_large"  # the body or the number of requests: halve the batch
    QUEUE_FULL = "queue_full"  # no room now; nothing is spent
    FILE_NOT_READY = "file_not_ready"  # the uploaded file is not known yet
    NOT_FOUND = "not_found"  # the id is not known (now)
    STORAGE_FULL = "storage_full"  # the account's file storage


class ProviderError(BatchctlError):
    """A provider call that failed, classified.

    Args:
        retry_after: seconds the provider asked to wait, if it did.
    """

    def __init__(
        self,
        message: str,
        *,
        fault: Fault,
        status: int | None = None,
        type: str | None = None,  # noqa: A002  # the provider's own word
        code: str | None = None,
        retry_after: float | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.fault = fault
        self.status = status
        self.type = type
        self.code = code
        self.retry_after = retry_after


EXIT_CODES: tuple[tuple[int, str], ...] = (
    (0, "did what was asked (for `run`, `poll --wait`, `fanout`: every item succeeded)"),
    (1, "unexpected error"),
    (2, "usage, bad input refused before anything was sent"),
    (3, "finished, some items failed"),
    (4, "`--wait` ran out with work still open"),
    (5, "another process holds this run"),
    (6, "stopped on a systemic error: credentials, billing, quota, failure rate"),
    (7, "state file unreadable, newer than this version, or older than what was sent"),
    (8, "a create is unknown and a person must look"),
    (130, "interrupted, state saved"),
    (143, "terminated, state saved"),
)
"""Exit codes and their meaning, in the order of the documentation."""
