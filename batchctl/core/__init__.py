"""Floor 0: pure rules. No I/O, clock, environment or randomness of its own; knows nothing of the floors above."""
