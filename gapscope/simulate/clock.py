"""The clocks that ranks read: what a trace shows of true time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapscope.simulate.spec import Spec

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]

# Simulated time 0 in Unix time, and on a clock without an offset.
_UNIX_NS = 1_800_000_000_000_000_000
_FIRST_NS = 1_000_000_000


@dataclass(frozen=True)
class RankClock:
    """Rank-local ns = true ns * rate + offset; from `jump_at_ns` on ahead by a jump and a bend."""

    offset_ns: int
    drift_ppb: float
    base_ns: int | None
    jump_ns: int = 0
    bend_ppb: float = 0.0
    jump_at_ns: float = 0.0

    @property
    def rate(self) -> float:
        """Local ns in one true ns."""
        return 1.0 + self.drift_ppb * 1e-9

    @property
    def first_ns(self) -> int:
        """Local ns at true time 0."""
        return _FIRST_NS + self.offset_ns

    def local(self, true_ns: Floats | float) -> Ints:
        """Times on the rank's clock."""
        import numpy as np

        true = np.asarray(true_ns)
        read: Ints = np.rint(true * self.rate).astype(np.int64)
        if self.jump_ns or self.bend_ppb:
            after = true - self.jump_at_ns
            ahead = self.jump_ns + np.rint(after * self.bend_ppb * 1e-9).astype(np.int64)
            read = read + np.where(after >= 0, ahead, 0)
        return read + (_FIRST_NS + self.offset_ns)


@dataclass(frozen=True)
class Reading:
    """What a rank learned of the clock of rank 0, by its own clock: `offset_ns` leads there."""

    at_ns: int
    offset_ns: int
    uncertainty_ns: int


def clocks(spec: Spec) -> list[RankClock]:
    """One clock a rank."""
    import numpy as np

    random = np.random.default_rng([spec.seed, spec.steps, 1])
    either = 2 * random.random((2, spec.ranks)) - 1
    offsets = np.rint(either[0] * spec.clock.offset_us * 1_000).astype(np.int64)
    found = []
    for rank in range(spec.ranks):
        offset = int(offsets[rank])
        drift = float(either[1, rank]) * spec.clock.drift_ppb
        base = _UNIX_NS - _FIRST_NS - offset if spec.clock.declared else None
        found.append(RankClock(offset, drift, base))
    said = spec.clock
    if said.jump_us or said.bend_ppb:
        found[said.jump_rank] = replace(
            found[said.jump_rank],
            jump_ns=round(said.jump_us * 1_000),
            bend_ppb=said.bend_ppb,
            jump_at_ns=said.jump_at_ms * 1e6,
        )
    return found


def readings(spec: Spec, own: list[RankClock], true_ns: tuple[float, float]) -> list[list[Reading]]:
    """What each rank read of the clock of rank 0 at these times; nothing without an exchange.

    Rank 0 reads its own. The way there and the way back take different shares of a round trip, so
    that a reading is off by up to half of it.
    """
    import numpy as np

    if not spec.clock.exchange_us:
        return [[] for _ in own]
    round_trip_ns = 1_000 * spec.clock.exchange_us
    random = np.random.default_rng([spec.seed, spec.steps, 2])
    errors = np.rint((random.random((spec.ranks, len(true_ns))) - 0.5) * round_trip_ns)
    found = [[Reading(0, 0, 0)]]
    for rank, clock in enumerate(own[1:], 1):
        its = []
        for true, error in zip(true_ns, errors[rank], strict=True):
            at = int(clock.local(true))
            offset = int(own[0].local(true)) - at + int(error)
            its.append(Reading(at, offset, int(np.ceil(round_trip_ns / 2))))
        found.append(its)
    return found
