"""Compute that runs beside communication takes longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.simulate.program import COMPUTE, Program

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


class Beside:
    """How long each op takes, given what runs beside it."""

    def __init__(self, program: Program, factor: float) -> None:
        import numpy as np

        work = np.array([op.work for op in program.ops])
        stream = np.array([op.stream for op in program.ops])
        self.compute = np.flatnonzero((work == "compute") & (stream == COMPUTE))
        self.collective = np.flatnonzero(work == "collective")
        self.factor = factor

    def stretched(self, alone: Floats, start: Floats, end: Floats) -> Floats:
        """Lengths when `factor` ns beside a resident collective do 1 ns of work.

        Collectives of a rank follow each other in order, so each op meets them one by one.
        """
        import numpy as np

        begin = start[self.compute]
        at = begin.copy()
        left = alone[self.compute]
        for number, first, stop in self._met(begin, left, start, end):
            its = slice(first, stop)
            lone = np.minimum(np.maximum(start[number] - at[its], 0), left[its])
            at[its] += lone
            left[its] -= lone
            beside = np.minimum(np.maximum(end[number] - at[its], 0) / self.factor, left[its])
            at[its] += beside * self.factor
            left[its] -= beside
        length: Floats = alone.copy()
        length[self.compute] = np.rint(at + left - begin)
        return length

    def _met(
        self, begin: Floats, alone: Floats, start: Floats, end: Floats
    ) -> list[tuple[int, int, int]]:
        """Each collective, and the compute ops that it may run beside on any rank."""
        import numpy as np

        # Ops are in order of time: those before `first` have ended by then, however slow they were.
        latest = np.maximum.accumulate(begin + alone * self.factor, axis=0)
        first = np.full(len(self.collective), len(begin))
        stop = np.zeros(len(self.collective), np.int64)
        for rank in range(begin.shape[1]):
            starts, ends = start[self.collective, rank], end[self.collective, rank]
            first = np.minimum(first, np.searchsorted(latest[:, rank], starts, "right"))
            stop = np.maximum(stop, np.searchsorted(begin[:, rank], ends, "left"))
        return list(zip(self.collective.tolist(), first.tolist(), stop.tolist(), strict=True))
