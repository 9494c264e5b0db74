"""Measures the promises of speed and size against bare loops that do the same work, in the same run."""
