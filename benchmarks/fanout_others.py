"""The fan-out through other people's tools; run by an interpreter that has them, and not batchctl.

Run as `PYTHON fanout_others.py TOOL URL ITEMS FOLDER`; ITEMS is a file of JSON lines with `id` and `t`. Each tool is
used by its own functions, with its own way of going on after an interruption, 200 calls in flight.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, D103

import asyncio
import json
import sys
from pathlib import Path

MODEL = "gpt-5-mini"
WINDOW = 200


def items(path):
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def flexllm(url, source, folder):
    from flexllm import LLMClient

    async def main() -> None:
        async with LLMClient(model=MODEL, base_url=f"{url}/v1", api_key="none", concurrency_limit=WINDOW) as client:
            messages = [[{"role": "user", "content": item["t"]}] for item in items(source)]
            await client.chat_batch(messages, output_jsonl=f"{folder}/results.jsonl", show_progress=False)

    asyncio.run(main())


def saturate(url, source, folder):
    from saturate import Fixed, pump

    pump(
        items(source),
        to_request=lambda row: {"model": MODEL, "messages": [{"role": "user", "content": row["t"]}]},
        parse=lambda _row, answer: {"text": answer["choices"][0]["message"]["content"]},
        endpoint=f"{url}/v1",
        output=f"{folder}/out",
        window=Fixed(WINDOW),
        id_key="id",
        signal_source="none",
    )


def async_batch_llm(url, source, folder):
    from async_batch_llm import ArtifactIdentity, JsonlArtifactStore, ResumePolicy, llm, process_prompts

    identity = ArtifactIdentity(provider="openai", model=MODEL)
    strategy = llm(f"openai-compatible:{MODEL}", base_url=f"{url}/v1", api_key="none")
    prompts = [(item["id"], item["t"]) for item in items(source)]
    store = JsonlArtifactStore(f"{folder}/results.jsonl", identity=identity)
    resume = ResumePolicy.REUSE_SUCCESSES
    asyncio.run(process_prompts(strategy, prompts, concurrency=WINDOW, artifact_store=store, resume=resume))


TOOLS = {tool.__name__: tool for tool in (flexllm, saturate, async_batch_llm)}

if __name__ == "__main__":
    TOOLS[sys.argv[1]](*sys.argv[2:])
