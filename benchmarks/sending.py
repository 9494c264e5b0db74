"""Sending a batch at the size limit: the bytes on the wire are the spool's, and they pass in constant memory."""

from __future__ import annotations

import hashlib
from pathlib import Path

from benchmarks.measuring import Bench, Cost, batchctl, main, measure, stub

ROOM_MB = 100
SIZES = {"anthropic": (250_000_000, 2_700), "openai": (195_000_000, 4_200)}
"""Bytes of the batch, and of an item so that the limit on bytes is met before the one on requests."""


def run(bench: Bench) -> None:
    """Submit one batch as large as the provider takes (or as `--items` allows), and a tiny one for the base."""
    for provider, (size, each) in SIZES.items():
        count = min(bench.items, size // (each + 300))
        base, _ = _submit(bench, provider, 100, each)
        cost, same = _submit(bench, provider, count, each)
        above = cost.rss_mb - base.rss_mb
        bench.figure(
            f"sending one {provider} batch of {count:,} items of {each:,} B",
            f"{above:.0f} MB above the base of {base.rss_mb:.0f} MB; bytes on the wire "
            f"{'equal' if same else 'DIFFER FROM'} the spool's",
            f"< {ROOM_MB} MB above the base",
            met=above < ROOM_MB and same,
        )


def _submit(bench: Bench, provider: str, count: int, each: int) -> tuple[Cost, bool]:
    folder = bench.fresh("sending")
    source = bench.input(count, each)
    with stub(folder / "provider", *(["--keep"] if provider == "openai" else [])) as server:
        url = server.url if provider == "anthropic" else f"{server.url}/v1"
        options = bench.options("--provider", provider, "--base-url", url, "--out", str(folder / "out"))
        cost = measure(batchctl(folder / "state.db", "submit", str(source), "--name", "bench", *options))
        sent = server.calls()
    spool = folder / "state" / "bench" / "spool.jsonl"
    if provider == "anthropic":
        return cost, sent[0]["sha256"] == _array_digest(spool)
    body = (folder / "provider" / "body-1").read_bytes()
    return cost, spool.read_bytes() in body


def _array_digest(spool: Path) -> str:
    """The digest of the lines as the JSON array that is sent."""
    digest = hashlib.sha256(b'{"requests":[')
    with spool.open("rb") as file:
        held = b""
        while piece := file.read(1 << 20):
            digest.update(held + piece[:-1].replace(b"\n", b","))
            held = piece[-1:].replace(b"\n", b",")
    digest.update(b"]}")
    return digest.hexdigest()


if __name__ == "__main__":
    main(run, items=20_000)
