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
        """Lengths when the share of an op that overlaps a resident collective is slowed down.

        Collectives of a rank follow each other, so their overlaps with one op add up.
        """
        import numpy as np

        begin, stop = start[self.compute], end[self.compute]
        overlap = np.zeros_like(begin)
        for number in self.collective:
            shared = np.minimum(stop, end[number]) - np.maximum(begin, start[number])
            overlap += np.maximum(shared, 0)
        # Beside communication `factor` ns of wall time do 1 ns of work.
        needed = alone[self.compute]
        done_beside = np.minimum(overlap / self.factor, needed)
        length: Floats = alone.copy()
        length[self.compute] = np.rint(needed + (self.factor - 1) * done_beside)
        return length
