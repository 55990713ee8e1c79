"""The headline of a comparison."""

from __future__ import annotations

import statistics

from gapscope.compare.document import StepLine
from gapscope.compare.intervals import of_means, of_medians, of_ratio
from gapscope.compare.words import headline

MS = 1e6


def line(a: list[float], b: list[float]) -> StepLine:
    low, high = of_ratio(a, b)
    delta = statistics.median(b) - statistics.median(a)
    return StepLine(
        rank=None, a_count=len(a), b_count=len(b), a_median_ns=statistics.median(a),
        b_median_ns=statistics.median(b), median_delta_ns=delta,
        median_delta_share=delta / statistics.median(a), share_low=low, share_high=high,
        median_interval=of_medians(a, b), mean_delta_ns=statistics.fmean(b) - statistics.fmean(a),
        mean_interval=of_means([a], [b])[0], a_low_ns=min(a), a_high_ns=max(a), b_low_ns=min(b),
        b_high_ns=max(b),
    )  # fmt: skip


def test_steps_of_two_kinds_are_compared_by_their_mean() -> None:
    """Six of eleven steps are slow: a median is of one kind or the other, however many there are."""
    a = [(170 + step % 3) * MS for step in range(11)]
    b = [(240 if step % 2 else 168) * MS for step in range(1, 12)]
    found = line(a, b)
    assert found.median_interval.sign == 0
    text = headline([], [found], "step").text
    # 6 x 240 and 5 x 168 against 4 x 170, 4 x 171 and 3 x 172: means of 207.27 and 170.91.
    assert text.startswith("In the mean a step of B is 36.36 ms longer (95 % interval +")
    assert "medians do not tell: +69.00 ms" in text
    assert text.endswith("Steps of B take 168.0 ms to 240.0 ms.")
    assert headline([], [line(b, a)], "step").text.startswith(
        "In the mean a step of B is 36.36 ms shorter ("
    )


def test_what_neither_tells_is_said_of_the_median() -> None:
    noisy = [(170 + step % 5) * MS for step in range(11)]
    text = headline([], [line(noisy, noisy[::-1])], "step").text
    assert text.startswith("Whether a step of B is longer or shorter is not resolved: 0 ns")
