"""How sure a difference is: bootstrap over the windows of each run, or their range where few.

Windows of one capture are drawn with replacement, in A and in B apart: step k of one run is not
step k of the other. What changes from one run of the same program to the next is in no capture, so
it is in no interval either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 2000
SEED = 0
LEVEL = 0.95
# Below this a bootstrap only repeats the few values that there are.
FEWEST = 4

BOOTSTRAP = "bootstrap"
RANGE = "range"
EDGES = "edges"


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a difference lies. `kind` is bootstrap (95 %), range or edges.

    range: from the least of B less the most of A to the most of B less the least of A. edges: what
    one launch more or less in each capture would make of it.
    """

    low_ns: float
    high_ns: float
    kind: str

    @property
    def sign(self) -> int:
        """1: B is more, -1: B is less, 0: not resolved."""
        if self.low_ns > 0:
            return 1
        return -1 if self.high_ns < 0 else 0


def of_means(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> list[Interval]:
    """Interval of each difference of means; `a[i]` and `b[i]` hold the windows of quantity i."""
    if not a:
        return []
    if min(len(a[0]), len(b[0])) < FEWEST:
        return [_range(one, other) for one, other in zip(a, b, strict=True)]
    import numpy as np

    means = []
    for side, windows in enumerate((a, b)):
        count = len(windows[0])
        # How often each window is drawn: drawing and averaging in one product.
        drawn = _generator(side).multinomial(count, np.full(count, 1 / count), RESAMPLES)
        means.append(drawn @ np.asarray(windows, dtype=float).T / count)
    low, high = _quantiles(means[1] - means[0])
    return [Interval(float(x), float(y), BOOTSTRAP) for x, y in zip(low, high, strict=True)]


def of_medians(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Interval of the difference of two medians."""
    if min(len(a), len(b)) < FEWEST:
        return _range(a, b)
    low, high = _quantiles(_medians(b, 1) - _medians(a, 0))
    return Interval(float(low), float(high), BOOTSTRAP)


def of_ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Where the median of B over that of A, less 1, lies; with few windows the range."""
    if min(len(a), len(b)) < FEWEST:
        return min(b) / max(a) - 1, max(b) / min(a) - 1
    low, high = _quantiles(_medians(b, 1) / _medians(a, 0) - 1)
    return float(low), float(high)


def _medians(windows: Sequence[float], side: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    import numpy as np

    drawn = _generator(side).choice(np.asarray(windows), (RESAMPLES, len(windows)))
    medians: np.ndarray[Any, np.dtype[np.float64]] = np.median(drawn, axis=1)
    return medians


def of_edges(a_ns: float, b_ns: float, a_units: int, b_units: int) -> Interval:
    """Of time a unit of work, where each capture may count one unit too many or too few."""
    a_low, a_high = _edges(a_ns, a_units)
    b_low, b_high = _edges(b_ns, b_units)
    return Interval(b_low - a_high, b_high - a_low, EDGES)


def of_edge_ratio(a_ns: float, b_ns: float, a_units: int, b_units: int) -> tuple[float, float]:
    """The same of B over A, less 1."""
    a_low, a_high = _edges(a_ns, a_units)
    b_low, b_high = _edges(b_ns, b_units)
    return b_low / a_high - 1, b_high / a_low - 1


def _edges(mean_ns: float, units: int) -> tuple[float, float]:
    return mean_ns * units / (units + 1), mean_ns * units / max(units - 1, 1)


def _range(a: Sequence[float], b: Sequence[float]) -> Interval:
    return Interval(min(b) - max(a), max(b) - min(a), RANGE)


def _generator(side: int) -> np.random.Generator:
    import numpy as np

    return np.random.default_rng([SEED, side])


def _quantiles(differences: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """Both ends of the interval, of each column."""
    import numpy as np

    outside = (1 - LEVEL) / 2
    return np.quantile(differences, [outside, 1 - outside], axis=0)
