"""The sync lane."""
