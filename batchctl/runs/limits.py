"""What a run's settings make of a provider's limits: how large batches may be, and what custom ids items get."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from batchctl.core.errors import InputError
from batchctl.core.ids import custom_id, custom_ids, tagged_id
from batchctl.providers.base import BatchLimits, RequestFormat
from batchctl.runs.settings import Settings

LEAST_BYTES = 500  # the smallest --max-bytes that makes sense: a request without a prompt is not much smaller


def limits_for(form: RequestFormat, settings: Settings) -> BatchLimits:
    """A provider's batch limits, lowered by the run's options.

    Raises:
        InputError: a limit that no request fits under.
    """
    base = form.limits()
    if settings.max_bytes is not None and settings.max_bytes < LEAST_BYTES:
        raise InputError(
            f"--max-bytes {settings.max_bytes} is below any request", hint=f"give at least {LEAST_BYTES:,} bytes"
        )
    return replace(
        base,
        requests=min(base.requests, settings.max_requests or base.requests),
        bytes=min(base.bytes, settings.max_bytes or base.bytes),
    )


def wire_id(settings: Settings, token: str, limits: BatchLimits, item_id: str, seq: int, batch: int) -> str:
    """The custom id of an item: its own id where the provider takes it, a generated one otherwise or with --tag-ids."""
    if settings.tag_ids:
        return tagged_id(token, batch, seq)
    return custom_id(item_id, seq, token, limits.custom_id_pattern)


def wire_ids(
    settings: Settings, token: str, limits: BatchLimits, item_ids: Sequence[str], first_seq: int, batch: int
) -> list[str]:
    """The custom ids of items of one batch that follow one another, each as `wire_id` makes it."""
    if settings.tag_ids:
        return [tagged_id(token, batch, seq) for seq in range(first_seq, first_seq + len(item_ids))]
    return custom_ids(item_ids, first_seq, token, limits.custom_id_pattern)


def id_room(settings: Settings) -> int:
    """Bytes a tagged request line may grow by when it goes into a batch with a longer number."""
    return 10 if settings.tag_ids else 0
