"""The yardsticks: bare loops that do a command's work on bytes alone, without state, checks or care.

Run as `python -m benchmarks.bare NAME ARGUMENTS…`; each reads and writes the same data as the command it stands beside.
"""

# ruff: noqa: PTH123, SIM115  # a bare loop opens its files as anybody would
from __future__ import annotations

import os
import sys
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from benchmarks.prompt import LITERALS

BATCH_REQUESTS = 100_000
BATCH_BYTES = 256_000_000


def plan(source: str, folder: str) -> None:
    """Parse each line, fill the template, serialise, write the batch files."""
    first, second, last = LITERALS
    number = written = count = 0
    out: BinaryIO = open(os.devnull, "wb")
    Path(folder).mkdir(parents=True, exist_ok=True)
    with open(source, "rb", 1 << 20) as lines:
        for line in lines:
            item = orjson.loads(line)
            prompt = "".join((first, item["subject"], second, item["text"], last))
            request = orjson.dumps(
                {
                    "custom_id": item["id"],
                    "params": {
                        "model": "claude-sonnet-4-5",
                        "max_tokens": 200,
                        "messages": [{"role": "user", "content": prompt}],
                    },
                },
                option=orjson.OPT_APPEND_NEWLINE,
            )
            if not number or count == BATCH_REQUESTS or written + len(request) > BATCH_BYTES:
                number += 1
                count = written = 0
                out.close()
                out = open(f"{folder}/batch-{number}.jsonl", "wb", 256 * 1024)
            out.write(request)
            count += 1
            written += len(request)
    out.close()


def _import(lines: Iterable[bytes], target: str) -> None:
    with open(target, "wb", 256 * 1024) as good, open(f"{target}.errors", "wb", 256 * 1024) as bad:
        for line in lines:
            entry = orjson.loads(line)
            result = entry["result"]
            if result["type"] != "succeeded":
                error = result.get("error", {}).get("error", {})
                bad.write(
                    orjson.dumps(
                        {
                            "id": entry["custom_id"],
                            "outcome": result["type"],
                            "error": {"type": error.get("type"), "code": None, "message": error.get("message")},
                            "attempts": 1,
                            "batch_id": target,
                            "round": 0,
                            "text": None,
                        },
                        option=orjson.OPT_APPEND_NEWLINE,
                    )
                )
                continue
            message = result["message"]
            usage = message["usage"]
            text = "".join(block["text"] for block in message["content"] if block["type"] == "text")
            cached = usage["cache_read_input_tokens"]
            tokens = usage["input_tokens"] + cached + usage["cache_creation_input_tokens"]
            good.write(
                orjson.dumps(
                    {
                        "id": entry["custom_id"],
                        "output": orjson.loads(text),
                        "text": text,
                        "stop_reason": message["stop_reason"],
                        "model": message["model"],
                        "usage": {
                            "input_tokens": tokens,
                            "output_tokens": usage["output_tokens"],
                            "cached_input_tokens": cached,
                        },
                        "cost_usd": tokens * 1.5e-6 + usage["output_tokens"] * 7.5e-6,
                        "lane": "batch",
                        "batch_id": target,
                        "round": 0,
                        "provider": "anthropic",
                    },
                    option=orjson.OPT_APPEND_NEWLINE,
                )
            )


def results(target: str, *urls: str) -> None:
    """Download result files; split, parse, build and write the same output lines."""
    for number, url in enumerate(urls):
        with urllib.request.urlopen(url) as lines:
            _import(lines, f"{target}-{number}")


def sdk_results(base_url: str, *batch_ids: str) -> None:
    """Iterate the SDK's own results and do nothing with them."""
    from anthropic import Anthropic

    client = Anthropic(base_url=base_url, api_key="none")
    for batch_id in batch_ids:
        for _ in client.messages.batches.results(batch_id):
            pass


def parse(*paths: str) -> None:
    """Read files as `cat | parser` would: every line decoded, nothing done with it."""
    for path in paths:
        with open(path, "rb", 1 << 20) as lines:
            for line in lines:
                orjson.loads(line)


def parse_stdin() -> None:
    """The same parser behind a pipe."""
    for line in sys.stdin.buffer:
        orjson.loads(line)


def imports() -> None:
    """An interpreter that starts and ends."""


LOOPS: dict[str, Callable[..., Any]] = {
    loop.__name__: loop for loop in (plan, results, sdk_results, parse, parse_stdin, imports)
}

if __name__ == "__main__":
    LOOPS[sys.argv[1]](*sys.argv[2:])
