"""GapScope: how much of a training step could be got back, from which mechanism."""

__version__ = "0.1.0"
