"""The only place that turns nanoseconds, bytes, shares and rates into text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

NOTHING = "n/a"

_SCALES: dict[str, tuple[tuple[float, str], ...]] = {
    "ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")),
    # A difference of times: shown with its sign.
    "+ns": ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")),
    # Decimal, as the GB/s of a link are.
    "B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "share": ((0.01, "%"),),
    "GB/s": ((1.0, "GB/s"),),
    "1/ms": ((1.0, "1/ms"),),
    # Clocks of devices, as their makers give them.
    "Hz": ((1e6, "MHz"),),
    "count": ((1.0, ""),),
}


# Control characters but tab and line end, and what reverses the order of text.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    r"""The text with characters that could steer a terminal or a page written out, as `\x1b`.

    Names in captures and files are not ours: they may hold any character.
    """
    return _STEERING.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def scale(values: Iterable[float | None], unit: str) -> tuple[float, str]:
    """Divisor and name of the display unit for numbers that are read together.

    The largest one decides: a column, or a value with its interval, must not mix units.
    """
    options = _SCALES[unit]
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    for divisor, name in options:
        if largest >= divisor:
            return divisor, name
    return options[-1]


def common(values: Sequence[float | None], unit: str) -> tuple[float, str] | None:
    """The unit in which numbers can be compared; None when small ones would become 0.0035 of it."""
    divisor, name = scale(values, unit)
    smallest = min((abs(value) for value in values if value), default=divisor)
    return None if smallest < divisor / 100 and unit in ("ns", "+ns", "B") else (divisor, name)


def number(value: float | None, divisor: float = 1.0, unit: str = "ns") -> str:
    """A number without its unit: four significant digits, thousands separated by commas."""
    if value is None:
        return NOTHING
    if unit == "count":
        return f"{round(value):,}"
    if unit == "+ns":
        text = number(value, divisor)
        return f"+{text}" if value > 0 and text != "0" else text
    scaled = value / divisor
    size = abs(scaled)
    if unit == "share":
        if 0 < size < 0.01:
            return "<0.01"
        return f"{scaled:,.1f}" if size >= 0.1 or scaled == 0 else f"{scaled:.2g}"
    if scaled == 0:
        return "0"
    if divisor == 1.0 and unit in ("ns", "B"):
        return f"{round(scaled):,}"
    if size >= 1000:
        return f"{scaled:,.0f}"
    if size >= 100:
        return f"{scaled:.1f}"
    return f"{scaled:.2f}" if size >= 0.01 else f"{scaled:.2g}"


def fixed(amount: float, sign: str = "") -> str:
    """Two digits after the point; what rounds to nothing has no sign."""
    text = f"{amount:{sign}.2f}"
    return text if float(text) else "0.00"


def value(amount: float | None, unit: str) -> str:
    """A number with its unit, e.g. `194.5 ms`."""
    if amount is None:
        return NOTHING
    divisor, name = scale([amount], unit)
    return f"{number(amount, divisor, unit)} {name}".rstrip()


def values(amounts: Sequence[float | None], unit: str) -> list[str]:
    """Numbers that are read together: in one unit where that is readable, which each names."""
    shared = common(amounts, unit)
    texts = []
    for amount in amounts:
        divisor, name = shared or scale([amount], unit)
        text = f"{number(amount, divisor, unit)} {name}".rstrip()
        texts.append(NOTHING if amount is None else text)
    return texts


def interval(
    amount: float | None,
    unit: str,
    n: int | None,
    low: float | None,
    high: float | None,
    at: tuple[float, str] | None = None,
) -> str:
    """A value with what it stands for: `194.5 ms (n=3, 191.7-195.3)`, with an en dash."""
    if amount is None:
        return NOTHING
    divisor, name = at or scale([amount, low, high], unit)
    text = f"{number(amount, divisor, unit)} {name}".rstrip()
    if n is None:
        return text
    if n == 1 or low is None or high is None:
        return f"{text} (n={n})"
    if low == high == amount:
        return f"{text} (n={n}, all equal)"
    ends = f"{number(low, divisor, unit)}–{number(high, divisor, unit)}"  # noqa: RUF001 -- a range
    return f"{text} (n={n}, {ends})"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """`1 step`, `3 steps`."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def listed(items: Sequence[object], limit: int = 8) -> str:
    """`0, 1, 2 and 5 more`; `0 to 7` for a run of integers."""
    if len(items) > 2 and all(isinstance(item, int) for item in items):
        whole = [item for item in items if isinstance(item, int)]
        if whole == list(range(whole[0], whole[0] + len(whole))):
            return f"{whole[0]} to {whole[-1]}"
    shown = ", ".join(str(item) for item in items[:limit])
    rest = len(items) - limit
    return f"{shown} and {rest} more" if rest > 0 else shown
