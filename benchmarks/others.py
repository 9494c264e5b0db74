"""The same two jobs through other people's tools; run by an interpreter that has one of them, and not batchctl.

Run as `PYTHON others.py TOOL prepare ITEMS FOLDER` or `PYTHON others.py TOOL import ITEMS FOLDER URL`. Preparing reads
the items, fills the prompt, splits by the limits as far as the tool does, and leaves request files; importing downloads
the results of those requests from URL and leaves answers by item. Each tool is used by its own functions.
"""

# mypy: ignore-errors
# ruff: noqa: PTH123, ANN001, ANN002, ANN201, D103, SLF001

import asyncio
import json
import os
import sys
import time
from pathlib import Path

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask the network for prices
sys.path.insert(0, str(Path(__file__).parent))
from prompt import LITERALS

MODEL = "claude-sonnet-4-5"


def items(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def prompt_of(item):
    return item["subject"].join(LITERALS[:2]) + item["text"] + LITERALS[2]


def batch_ids(folder):
    return [f"msgbatch_{number:06d}" for number, _ in enumerate(sorted(folder.glob("batch-*.jsonl")), 1)]


def write_batch(folder, number, lines):
    with open(folder / f"batch-{number:06d}.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


# steadybatch


def steadybatch_runner(folder, url):
    from anthropic import Anthropic
    from steadybatch import Runner
    from steadybatch.providers.anthropic_batch import AnthropicBatch

    client = Anthropic(base_url=url, api_key="none")
    return Runner(AnthropicBatch(client), MODEL, checkpoint=folder / "job.sqlite", poll_every=0.1)


def steadybatch_prepare(source, folder):
    from steadybatch import Request
    from steadybatch.chunking import chunk

    runner = steadybatch_runner(folder, "http://127.0.0.1:1")
    requests = [
        Request(key=item["id"], messages=[{"role": "user", "content": prompt_of(item)}], max_tokens=200)
        for item in items(source)
    ]
    runner.store.add(runner.prepare(requests))
    provider = runner.provider
    todo = runner.store.ready_to_submit(3)
    batches = chunk(todo, provider.max_requests_per_batch, provider.max_bytes_per_batch, provider.size_of)
    for number, batch in enumerate(batches, 1):
        write_batch(folder, number, map(provider.to_line, batch))
        runner.store.mark_submitted(f"msgbatch_{number:06d}", provider.name, [request.custom_id for request in batch])


def steadybatch_import(_source, folder, url):
    from steadybatch.runner import RunReport

    runner = steadybatch_runner(folder, url)
    runner._collect_open(RunReport(results=[]), time.time())
    with open(folder / "answers.jsonl", "w", encoding="utf-8") as out:
        out.writelines(
            json.dumps({"id": result.key, "output": result.data, "text": result.text}) + "\n"
            for result in runner.store.results()
        )


# loom-batch


def loom_prepare(source, folder):
    from loom.core.models import PromptItem
    from loom.providers.openai import OpenAIBatchProvider

    path = folder / "prompts.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump([{"id": item["id"], "prompt": prompt_of(item)} for item in items(source)], file)
    from loom.core.orchestrator import _load_input

    prompts, _, _ = _load_input(path, "json", "")
    assert isinstance(prompts[0], PromptItem)
    provider = object.__new__(OpenAIBatchProvider)  # its constructor only makes a client
    (folder / "batch-000001.jsonl").write_bytes(provider._build_jsonl(prompts, MODEL))


def loom_import(_source, folder, url):
    os.environ["ANTHROPIC_BASE_URL"] = url
    from loom.providers.anthropic import AnthropicBatchProvider
    from loom.utils.converters import merge_json

    provider = AnthropicBatchProvider("none")
    answers = {}
    for batch_id in batch_ids(folder):
        got, _ = provider.download_results(batch_id)
        answers.update(got)
    merge_json(folder / "prompts.json", answers, folder / "answers.json")


# batchlane


def batchlane_lines(source):
    import batchlane

    return [
        batchlane.BatchLine(
            item["id"], f"anthropic/{MODEL}", [{"role": "user", "content": prompt_of(item)}], {"max_tokens": 200}
        )
        for item in items(source)
    ]


def batchlane_prepare(source, folder):
    import batchlane
    from batchlane.adapters.anthropic import AnthropicAdapter

    adapter = AnthropicAdapter()
    for number, chunk in enumerate(batchlane.plan(batchlane_lines(source)).chunks, 1):
        write_batch(folder, number, adapter.build_requests(chunk))


def batchlane_import(_source, folder, url):
    import batchlane
    from batchlane.adapters import anthropic

    anthropic.BASE_URL = f"{url}/v1/messages/batches"
    adapter = anthropic.AnthropicAdapter()
    with open(folder / "answers.jsonl", "w", encoding="utf-8") as out:
        for batch_id in batch_ids(folder):
            handle = batchlane.BatchHandle("anthropic", batch_id, "chat.completions", "batch_inline", None, None, {})
            for result in adapter.results(handle, api_key="none"):
                text = batchlane.answer_text(result) if result.response else None
                out.write(json.dumps({"id": result.custom_id, "text": text}) + "\n")


# bespokelabs-curator (its Anthropic side does not run with the instructor it installs)


def curator_processor(folder):
    os.environ.update(OPENAI_API_KEY="none", TELEMETRY_ENABLED="false", CURATOR_VIEWER="0")
    from bespokelabs.curator.llm.prompt_formatter import PromptFormatter
    from bespokelabs.curator.request_processor.batch.openai_batch_request_processor import OpenAIBatchRequestProcessor
    from bespokelabs.curator.request_processor.config import BatchRequestProcessorConfig

    config = BatchRequestProcessorConfig(model=MODEL, batch_size=50_000)
    processor = OpenAIBatchRequestProcessor(config)
    processor.prompt_formatter = PromptFormatter(MODEL, prompt_of, lambda _, response: {"answer": response})
    processor.working_dir = str(folder)
    return processor


def curator_prepare(source, folder):
    from datasets import Dataset

    processor = curator_processor(folder)
    dataset = Dataset.from_json(str(source), cache_dir=str(folder / "cache"))
    for number, path in enumerate(sorted(processor.create_request_files(dataset)), 1):
        requests = processor.requests_from_generic_request_file(path, set())
        (folder / f"batch-{number:06d}.jsonl").write_bytes(processor.create_batch_file(requests))


def main(tool, job, source, folder, *url):
    Path(folder).mkdir(parents=True, exist_ok=True)
    result = globals()[f"{tool}_{job}"](Path(source), Path(folder), *url)
    if asyncio.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
