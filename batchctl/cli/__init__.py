"""Floor 3: click commands of a few lines, and renderers of events. Everything slow is imported inside commands."""
