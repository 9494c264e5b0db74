"""Makes input of any size in constant memory: log-normal lengths with a long tail, in several scripts.

Run as `python -m benchmarks.data items FILE COUNT SIZE`, `… results STATE RUN FOLDER` (for a run that was submitted) or
`… answers FOLDER_OF_REQUEST_FILES FOLDER`.
"""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson

POOL = 8_192  # different texts; each item takes one by its number
TAIL = 0.002  # share of texts that are many times longer
TAIL_TIMES = 20
SIGMA = 0.6
ODD = 0.04  # share of words with quotes, escapes or markup
OVERHEAD = 110  # bytes of an item beside its text
REPLY_BYTES = 1_500

_ODD = ["line\nbreak", "tab\there", "back\\slash", '"quotes"', "<b>bold</b>", "{braces}", "it's", "50%", "12.90"]
_SCRIPTS = (  # share of the texts, and the words besides the odd ones
    (55, "the payment was declined twice and my card still shows the charge please help me where is my parcel now"),
    (10, "the charge of €12.90 was “declined” — please help 🙂 my card still shows it naïve café"),
    (20, "Rückerstattung für die Überweisung größer dann déjà payé coût élève señor mañana la cuenta está bloqueada"),
    (8, "оплата не прошла дважды моя карта заблокирована помогите где посылка"),
    (7, "支付 失败 请 帮助 我的 卡 カード が 使えない 助けて ください 🚚"),
)
_LANGUAGES = ("en", "de", "fr", "es", "ru", "zh", "ja")


def texts(size: int, seed: int = 7) -> list[bytes]:
    """A pool of texts as JSON strings, `size` bytes on average."""
    rng = random.Random(seed)
    mean = size / (1 + TAIL * (TAIL_TIMES - 1))
    pool = []
    for _ in range(POOL):
        length = mean * rng.lognormvariate(-SIGMA * SIGMA / 2, SIGMA) * (TAIL_TIMES if rng.random() < TAIL else 1)
        (script,) = rng.choices([words.split(" ") for _, words in _SCRIPTS], [share for share, _ in _SCRIPTS])
        words, total = [], 0.0
        while total < length:
            words.append(rng.choice(_ODD if rng.random() < ODD else script))
            total += len(words[-1].encode()) + 1
        pool.append(orjson.dumps(" ".join(words)))
    return pool


def item_lines(count: int, size: int) -> Iterator[bytes]:
    """Item lines of `size` bytes on average."""
    pool = texts(size - OVERHEAD)
    subjects = texts(40, seed=9)
    for number in range(1, count + 1):
        yield b'{"id":"item-%08d","subject":%b,"text":%b,"lang":"%b","priority":%d}\n' % (
            number,
            subjects[number * 40_503 % POOL],
            pool[number * 25_667 % POOL],
            _LANGUAGES[number % 7].encode(),
            number % 5,
        )


def write_items(path: Path, count: int, size: int) -> None:
    """Write a file of items."""
    with path.open("wb", 1 << 20) as file:
        file.writelines(item_lines(count, size))


def result_line(custom_id: bytes, number: int, replies: list[bytes]) -> bytes:
    """A line of an Anthropic result file: 1 % errored, 1 % expired, the rest a JSON reply of about 1.5 kB."""
    kind = number % 100
    if kind == 1:
        result = b'{"type":"errored","error":{"type":"error","error":{"type":"api_error","message":"Internal error"}}}'
    elif kind == 2:  # a share of one percent
        result = b'{"type":"expired"}'
    else:
        result = (
            b'{"type":"succeeded","message":{"id":"msg_%012d","type":"message","role":"assistant",'
            b'"model":"claude-sonnet-4-5","content":[{"type":"text","text":%b}],"stop_reason":"end_turn",'
            b'"stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,'
            b'"cache_read_input_tokens":0,"output_tokens":%d,"service_tier":"batch"}}}'
        ) % (number, replies[number * 25_667 % POOL], 100 + number % 400, 50 + number % 300)
    return b'{"custom_id":%b,"result":%b}\n' % (custom_id, result)


def replies() -> list[bytes]:
    """JSON replies as the text of a message, a string inside a string."""
    return [
        orjson.dumps(
            orjson.dumps({"label": _LANGUAGES[n % 7], "confidence": n % 100 / 100, "why": orjson.loads(text)}).decode()
        )
        for n, text in enumerate(texts(REPLY_BYTES - 420, seed=8))
    ]


def write_results(state: Path, run: str, folder: Path) -> None:
    """Write the result file of every batch of a run that was submitted, in random order, named by its id."""
    pool = replies()
    database = sqlite3.connect(state)
    batches = database.execute(
        "SELECT number, batch_id, first_seq, last_seq FROM batches"
        " WHERE batch_id IS NOT NULL AND run_id = (SELECT id FROM runs WHERE name = ?)",
        (run,),
    ).fetchall()
    folder.mkdir(parents=True, exist_ok=True)
    for number, batch_id, first, last in batches:
        ids = database.execute(
            "SELECT seq, id FROM items WHERE run_id = (SELECT id FROM runs WHERE name = ?)"
            " AND batch = ? AND seq BETWEEN ? AND ?",
            (run, number, first, last),
        ).fetchall()
        random.Random(number).shuffle(ids)
        with (folder / f"{batch_id}.jsonl").open("wb", 1 << 20) as file:
            file.writelines(result_line(orjson.dumps(id_), seq, pool) for seq, id_ in ids)


def write_answers(requests: Path, folder: Path) -> None:
    """Write the result file of every request file `batch-*.jsonl`, named by its place."""
    pool = replies()
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(requests.glob("batch-*.jsonl")), 1):
        with path.open("rb") as lines:
            ids = [(place, orjson.dumps(orjson.loads(line)["custom_id"])) for place, line in enumerate(lines)]
        random.Random(number).shuffle(ids)
        with (folder / f"msgbatch_{number:06d}.jsonl").open("wb", 1 << 20) as file:
            file.writelines(result_line(custom_id, place, pool) for place, custom_id in ids)


def main(arguments: list[str]) -> None:
    """Write what the arguments ask for."""
    if arguments[0] == "items":
        write_items(Path(arguments[1]), int(arguments[2]), int(arguments[3]))
    elif arguments[0] == "answers":
        write_answers(Path(arguments[1]), Path(arguments[2]))
    else:
        write_results(Path(arguments[1]), arguments[2], Path(arguments[3]))


if __name__ == "__main__":
    main(sys.argv[1:])
