"""When things happened, as the clocks of the ranks show it: written step by step, read by rank.

The times of a thousand ranks are gigabytes. They go through a file a step, so that never more than
one step, or one rank, is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from gapscope.simulate.clock import RankClock
    from gapscope.simulate.truth import Step

    Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Seen:
    """One step of one rank on the rank's clock."""

    start: Ints
    end: Ints
    call_start: Ints
    call_end: Ints
    opened: int
    closed: int


@dataclass(frozen=True)
class Times:
    """Files of one training in a directory; `steps` of them, for a program of that size."""

    directory: Path
    steps: int
    ops: int
    items: int

    def write(self, step: Step, clocks: list[RankClock]) -> None:
        """The times of one step on all ranks."""
        import numpy as np

        timing = step.timing
        columns = [
            *(timing.start, timing.end, timing.call_start, timing.call_end),
            *(step.opened[None], timing.host_end[None]),
        ]
        # Rank by rank, so that a rank is one read.
        shape = (len(clocks), 2 * (self.ops + self.items + 1))
        rows = np.lib.format.open_memmap(self._file(step.number), "w+", np.int64, shape)
        for rank, clock in enumerate(clocks):
            rows[rank] = clock.local(np.concatenate([times[:, rank] for times in columns]))
        rows.flush()

    def of(self, rank: int) -> list[Seen]:
        """The steps of one rank."""
        import numpy as np

        ends = np.cumsum([self.ops, self.ops, self.items, self.items])
        found = []
        for step in range(self.steps):
            row = np.array(np.load(self._file(step), mmap_mode="r")[rank])
            start, end, call_start, call_end, window = np.split(row, ends)
            found.append(Seen(start, end, call_start, call_end, int(window[0]), int(window[1])))
        return found

    def _file(self, step: int) -> Path:
        return self.directory / f"{step}.npy"
