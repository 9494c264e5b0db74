"""The settings of a run: what makes it this run (its identity) and what may change from one command to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from batchctl.core.fingerprint import differences, fingerprint

OPERATIONAL = frozenset(
    {
        "max_enqueued_tokens",
        "max_queued_requests",
        "max_resubmits",
        "deadline",
        "interval",
        "settle_after",
        "rpm",
        "tpm",
        "concurrency",
        "max_attempts",
        "timeout",
        "share",
        "max_failure_rate",
        "max_cost",
    }
)
"""Settings that steer the work without changing what is asked; a repeated command may change them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run was asked for.

    Args:
        prompt: the template's text, None with finished requests.
        variables: constants of the template.
        requests: the items are finished provider requests.
        deadline: seconds after which a batch that is still running counts as expired.
        interval: seconds between two looks at a batch.
        timeout: seconds one sync attempt may take in all; None scales with max_tokens.
        simulate: the run lives on the simulator inside this program.
    """

    provider: str
    endpoint: str
    model: str | None
    prompt: str | None = None
    system: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    id_field: str = "id"
    number_ids: bool = False
    max_tokens: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    betas: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    requests: bool = False
    tag_ids: bool = False
    skip_bad: bool = False
    base_url: str | None = None
    simulate: bool = False
    max_requests: int | None = None
    max_bytes: int | None = None
    max_enqueued_tokens: int | None = None
    max_queued_requests: int | None = None
    max_resubmits: int = 2
    deadline: float = 24 * 3600.0
    interval: float = 60.0
    settle_after: float = 120.0
    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    max_attempts: int = 5
    timeout: float | None = None
    share: float = 1.0
    max_failure_rate: float = 0.2
    max_cost: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """All settings as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Settings:
        """Settings as they were stored; a field a later release added takes its default."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in known})

    def identity(self) -> dict[str, Any]:
        """The settings that decide what is asked and how it is cut into batches."""
        return {name: value for name, value in self.as_dict().items() if name not in OPERATIONAL}

    def fingerprint(self) -> str:
        """A short digest of the identity."""
        return fingerprint(self.identity())

    def changes(self, other: Settings) -> list[tuple[str, str, str]]:
        """What differs in the identity, as (field, here, in `other`)."""
        return differences(self.identity(), other.identity())
