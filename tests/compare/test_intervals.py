"""Bootstrap and ranges: what they cover, and that they never claim more."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapscope.compare.intervals import (
    FEWEST,
    Interval,
    of_edge_ratio,
    of_edges,
    of_means,
    of_medians,
    of_ratio,
)

windows = st.lists(st.integers(1_000, 1_000_000).map(float), min_size=1, max_size=12)
enough = st.lists(st.integers(1_000, 1_000_000).map(float), min_size=FEWEST, max_size=12)


@given(windows, windows)
def test_an_interval_holds_what_it_is_of(a, b):
    (mean,) = of_means([a], [b])
    median = of_medians(a, b)
    low, high = of_ratio(a, b)
    assert mean.kind == median.kind == ("range" if min(len(a), len(b)) < FEWEST else "bootstrap")
    # Of what binary fractions round.
    tiny = 1e-6
    if mean.kind == "range":
        assert mean.low_ns <= statistics.fmean(b) - statistics.fmean(a) + tiny
        assert mean.high_ns >= statistics.fmean(b) - statistics.fmean(a) - tiny
        assert low - tiny <= statistics.median(b) / statistics.median(a) - 1 <= high + tiny
    for interval in (mean, median):
        assert interval.low_ns >= min(b) - max(a) - tiny
        assert interval.low_ns <= interval.high_ns <= max(b) - min(a) + tiny
    assert min(b) / max(a) - 1 - tiny <= low <= high <= max(b) / min(a) - 1 + tiny


@given(enough, enough)
def test_equal_input_gives_equal_intervals(a, b):
    assert of_means([a, a], [b, b]) == of_means([a], [b]) * 2
    assert of_medians(a, b) == of_medians(a, b)
    assert of_ratio(a, b) == of_ratio(a, b)


def test_windows_that_do_not_vary_leave_no_doubt():
    assert of_means([[5.0] * 4], [[7.0] * 4]) == [Interval(2, 2, "bootstrap")]
    assert of_ratio([5.0] * 4, [10.0] * 4) == (1, 1)


def test_the_interval_is_as_wide_as_statistics_says():
    """95 % of means of n draws lie within 1.96 s / sqrt(n)."""
    a = [100.0 + one for one in (-3, -2, -1, 0, 1, 2, 3) * 20]
    (interval,) = of_means([a], [[150.0] * 140])
    expected = 1.96 * statistics.pstdev(a) / len(a) ** 0.5
    assert (interval.high_ns - interval.low_ns) / 2 == pytest.approx(expected, rel=0.06)
    assert (interval.high_ns + interval.low_ns) / 2 == pytest.approx(50, abs=0.05)


def test_the_same_bootstrap_draws_a_and_b_apart():
    """Were both drawn alike, runs that vary alike would differ by nothing, for sure."""
    values = [float(one) for one in range(20)]
    (interval,) = of_means([values], [values])
    assert interval.low_ns < -1
    assert interval.high_ns > 1


@pytest.mark.parametrize(
    ("low", "high", "sign"), [(1, 2, 1), (-2, -1, -1), (-1, 1, 0), (0, 0, 0), (0, 1, 0)]
)
def test_the_sign_is_said_only_where_zero_lies_outside(low, high, sign):
    assert Interval(low, high, "range").sign == sign


def test_edges_are_a_launch_at_either_side():
    interval = of_edges(100.0, 100.0, 11, 21)
    assert interval.low_ns == pytest.approx(100 * 21 / 22 - 100 * 11 / 10)
    assert interval.high_ns == pytest.approx(100 * 21 / 20 - 100 * 11 / 12)
    low, high = of_edge_ratio(100.0, 100.0, 11, 21)
    assert low < 0 < high
