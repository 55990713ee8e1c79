"""GapScope: how much of a training step could be got back, from which mechanism."""

from gapscope._version import __version__
from gapscope.run import Run, open_run

__all__ = ["Run", "__version__", "open_run"]
