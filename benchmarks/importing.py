"""Results: download and import against a bare loop that writes the same lines, and against the SDK's own iterator."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measuring import Bench, Cost, Pairs, Snapshot, Stub, batchctl, main, measure, module, must, pairs, stub

TARGET = 0.5
SDK_TARGET = 4.0


def submitted(bench: Bench, server: Stub, folder: Path, *more: str) -> Path:
    """The state of a run whose batches have all ended at the provider; returns the state file."""
    state = folder / "state.db"
    source = bench.input(bench.items, 500)
    options = bench.options("--base-url", server.url, "--out", str(folder / "out"), "--name", "bench", *more)
    measure(batchctl(state, "submit", str(source), *options))
    must("benchmarks.data", "results", str(state), "bench", str(server.folder))
    return state


def run(bench: Bench) -> None:
    """Poll once over ended batches, again and again from the same state."""
    folder = bench.fresh("importing")
    with stub(folder / "provider") as server:
        state = submitted(bench, server, folder / "run")
        snapshot = Snapshot(folder / "run")
        ids = sorted(path.stem for path in server.folder.glob("msgbatch_*.jsonl"))
        urls = [f"{server.url}/v1/messages/batches/{batch_id}/results" for batch_id in ids]

        def ours() -> Cost:
            snapshot.restore()
            return measure(batchctl(state, "poll", "bench"))

        bare = module("benchmarks.bare", "results", str(folder / "bare"), *urls)
        taken = pairs(bench.rounds, ours, lambda: measure(bare))
        _figure(bench, taken, "a bare loop", TARGET)
        sdk = module("benchmarks.bare", "sdk_results", server.url, *ids)
        taken = pairs(bench.rounds, ours, lambda: measure(sdk))
        _figure(bench, taken, "the SDK's iterator", SDK_TARGET)


def _figure(bench: Bench, taken: Pairs, name: str, target: float) -> None:
    bench.figure(
        f"download and import, {bench.items:,} results of 1.5 kB, against {name}",
        str(taken),
        f">= {target}",
        met=taken.wall >= target,
    )


if __name__ == "__main__":
    main(run, items=50_000)
