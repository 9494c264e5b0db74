"""The state store: the only code that speaks SQL. It imports nothing of the floors beside or above it."""
