"""One model answer per item, through provider batches or throttled calls, with nothing lost and nothing paid twice."""

__version__ = "0.1.0"
