"""The prompt of every benchmark, as a template and as the texts between its fields."""

from __future__ import annotations

import sys
from pathlib import Path

LITERALS = (
    "You sort support messages. Answer with one JSON object with the fields label, confidence and why.\nSubject: ",
    "\nMessage:\n",
    "\n\nOnly JSON, nothing else.",
)
TEMPLATE = "{{ subject }}".join(LITERALS[:2]) + "{{ text }}" + LITERALS[2]

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(TEMPLATE, encoding="utf-8")
