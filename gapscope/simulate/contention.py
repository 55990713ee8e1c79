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
        for number in self.collective:
            lone = np.minimum(np.maximum(start[number] - at, 0), left)
            at += lone
            left = left - lone
            beside = np.minimum(np.maximum(end[number] - at, 0) / self.factor, left)
            at += beside * self.factor
            left -= beside
        length: Floats = alone.copy()
        length[self.compute] = np.rint(at + left - begin)
        return length
