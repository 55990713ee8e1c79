from __future__ import annotations

import pytest

from gapscope import units


@pytest.mark.parametrize(
    ("amount", "unit", "text"),
    [
        (None, "ns", "n/a"),
        (0, "ns", "0 ns"),
        (999, "ns", "999 ns"),
        (1_000, "ns", "1.00 us"),
        (194_486_489, "ns", "194.5 ms"),
        (12_915_000_000, "ns", "12.91 s"),
        (5_000_000_000_000, "ns", "5,000 s"),
        (0.0123, "share", "1.2 %"),
        (0.0002, "share", "0.02 %"),
        (28.515, "share", "2,851.5 %"),
        (0.0, "share", "0.0 %"),
        (1536, "B", "1.54 kB"),
        (25_480_000_000, "B", "25.48 GB"),
        (3.1e-7, "share", "<0.01 %"),
        (27.66, "GB/s", "27.66 GB/s"),
        (1234567, "count", "1,234,567"),
    ],
)
def test_value(amount: float | None, unit: str, text: str) -> None:
    assert units.value(amount, unit) == text


def test_interval_keeps_one_unit() -> None:
    assert units.interval(1_500_000, "ns", 3, 900_000, 2_000_000) == "1.50 ms (n=3, 0.90–2.00)"  # noqa: RUF001 -- a range
    assert units.interval(5, "ns", 1, 5, 5) == "5 ns (n=1)"
    assert units.interval(5, "ns", 4, 5, 5) == "5 ns (n=4, all equal)"
    assert units.interval(5, "ns", None, None, None) == "5 ns"
    assert units.interval(None, "ns", 4, 5, 5) == "n/a"


def test_values_share_a_unit_while_that_is_readable() -> None:
    assert units.values([2_000_000, 300_000, None], "ns") == ["2.00 ms", "0.30 ms", "n/a"]
    assert units.values([2_000_000, 300], "ns") == ["2.00 ms", "300 ns"]


def test_listed() -> None:
    assert units.listed([0, 1, 2, 3]) == "0 to 3"
    assert units.listed([0, 2, 4]) == "0, 2, 4"
    assert units.listed(list("abcdefghij"), 3) == "a, b, c and 7 more"


def test_plural() -> None:
    assert units.plural(1, "step") == "1 step"
    assert units.plural(1200, "copy", "copies") == "1,200 copies"


def test_plain_writes_out_what_steers_a_terminal() -> None:
    assert units.plain("a\x1b[31mb\u202ec\td\n") == "a\\x1b[31mb\\u202ec\td\n"
