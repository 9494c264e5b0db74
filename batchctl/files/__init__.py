"""Adapters to files: readers, spool, result files, lock, output folder. They know core and nothing beside them."""
