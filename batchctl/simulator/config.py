"""Settings of the simulator: address, clock, seed, provider limits, speed of the work, and faults."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

DAY = 86_400.0


@dataclass(slots=True)
class SyncLimits:
    """Per-minute limits of the synchronous endpoints of one provider; None is unlimited.

    Args:
        requests_per_minute: calls in any 60 seconds.
        tokens_per_minute: input tokens on Anthropic, all tokens on OpenAI (each provider's rate-limit page).
        output_tokens_per_minute: output tokens really produced, Anthropic only.
        algorithm: `window` (strict sliding minute) or `bucket` (continuous refill, full at the start).
        openai_charge: `usage` charges real tokens, `reserve` charges max(max_tokens, prompt) as OpenAI's page says.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    output_tokens_per_minute: int | None = None
    algorithm: str = "window"
    openai_charge: str = "usage"


@dataclass(slots=True)
class SimulatorConfig:
    """Everything that shapes one simulator; durations are virtual seconds.

    Args:
        port: TCP port; 0 takes a free one.
        data: folder that keeps the state over restarts; None keeps it in memory.
        speed: virtual seconds per real second; 0 stops the clock, so that only `advance` moves it.
        seed: fixes durations, order of result lines and every random fault.
        faults: rules in the form that `batchctl.simulator.faults` documents.
        batch_seconds: time a batch needs before the spread.
        batch_spread: sigma of the log-normal factor on `batch_seconds`.
        latency_seconds: median latency of a synchronous answer.
        latency_spread: sigma of the log-normal latency.
        openai_enqueued_tokens: prompt tokens that may wait per model; None is unlimited.
        anthropic_queue_requests: requests that may wait over all batches; None is unlimited.
        context_tokens: longest prompt a model takes.
        embedding_dimensions: length of vectors when the request names none (short, to keep files small).
        keep_ledger: False drops the ledger, for benchmarks of millions of calls.
    """

    host: str = "127.0.0.1"
    port: int = 0
    data: Path | None = None
    speed: float = 1.0
    seed: int = 0
    faults: dict[str, Any] = field(default_factory=dict)
    batch_seconds: float = 60.0
    batch_spread: float = 0.0
    validation_seconds: float = 1.0
    finalizing_seconds: float = 1.0
    cancel_seconds: float = 1.0
    expiry_seconds: float = DAY
    anthropic_max_requests: int = 100_000
    anthropic_max_bytes: int = 256_000_000
    anthropic_message_bytes: int = 32_000_000
    anthropic_queue_requests: int | None = None
    openai_max_requests: int = 50_000
    openai_max_bytes: int = 200_000_000
    openai_enqueued_tokens: int | None = None
    anthropic_limits: SyncLimits = field(default_factory=SyncLimits)
    openai_limits: SyncLimits = field(default_factory=SyncLimits)
    latency_seconds: float = 0.0
    latency_spread: float = 0.0
    context_tokens: int = 200_000
    embedding_dimensions: int = 64
    keep_ledger: bool = True

    @classmethod
    def from_file(cls, path: Path | str) -> SimulatorConfig:
        """Read settings from a JSON file whose keys are the fields; `faults` may be the name of another file."""
        here = Path(path)
        raw = msgspec.json.decode(here.read_bytes())
        if not isinstance(raw, dict):
            raise ValueError(f"{here}: expected a JSON object of settings")  # noqa: TRY004
        unknown = sorted(set(raw) - {known.name for known in fields(cls)})
        if unknown:
            raise ValueError(f"{here}: unknown setting {', '.join(unknown)}")
        if isinstance(raw.get("faults"), str):
            raw["faults"] = read_faults(here.parent / raw["faults"])
        return msgspec.convert(raw, cls)


def read_faults(path: Path | str) -> dict[str, Any]:
    """Read a fault file, a JSON object in the form that `batchctl.simulator.faults` documents."""
    faults = msgspec.json.decode(Path(path).read_bytes())
    if not isinstance(faults, dict):
        raise ValueError(f"{path}: expected a JSON object of fault sections")  # noqa: TRY004
    return faults
