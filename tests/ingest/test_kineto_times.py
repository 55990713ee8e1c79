"""The Kineto reader: times, exact to the nanosecond."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapscope.ingest.kineto_fields import to_ns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5105139832105.565", 5105139832105565),
        ("1661203462598738", 1661203462598738000),
        ("9007199254740993.125", 9007199254740993125),  # beyond what a double holds
        ("168.35", 168350),
        ("0.0005", 0),
        ("0.0015", 2),
        ("2.00049999999999999999", 2000),
        ("-0.5", -500),
        ("-0", 0),
        ("1e3", 1_000_000),
        ("1.5E-2", 15),
        ('"12.25"', 12250),
        ('" 7 "', 7000),
        ("1e-2000", 0),
    ],
)
def test_times_are_exact(text: str, expected: int) -> None:
    assert to_ns(text.encode()) == expected


@pytest.mark.parametrize(
    "text", ["1e400", "1" + "0" * 40, "null", "", '""', '"abc"', "true", "[1]", '"1_0"', "1" * 999]
)
def test_what_is_no_time_raises(text: str) -> None:
    with pytest.raises(ValueError):
        to_ns(text.encode())


@given(st.decimals(-(10**12), 10**12, places=6), st.integers(-3, 3))
def test_times_round_half_even(value: Any, exponent: int) -> None:
    exact = Fraction(value) * 1000 * Fraction(10) ** exponent
    assert to_ns(f"{value:f}e{exponent}".encode()) == round(exact)
