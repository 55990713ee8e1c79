"""Pair to comparison. Numbers come from the views; here they get intervals and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapscope._version import __version__
from gapscope.compare import claims, intervals, ledgers, queries, words
from gapscope.compare.document import Check, Comparison, StepLine, VolumeLine, Volumes

if TYPE_CHECKING:
    from gapscope.compare.ledgers import Rows

Row = dict[str, Any]

# Device ops whose work volume changed by less than this share of A's step are counted, not listed.
_NAMED_SHARE = 0.001


def build(pair: Rows, a: str, b: str) -> Comparison:
    """The comparison of two runs, under the names that they go by."""
    checks = tuple(_check(row) for row in pair.rows(queries.CHECKS))
    shown = pair.rows(queries.SHOWN)[0]
    is_comparable = not any(check.verdict == "forbids" for check in checks)
    steps = _steps(pair, shown) if is_comparable else ()
    # Every step of the run may lack a rank.
    is_comparable = is_comparable and any(line.rank is None for line in steps)
    found = ledgers.build(pair, shown) if is_comparable else ()
    is_named = is_comparable and pair.rows(queries.NAMING)[0]["is_by_name"]
    volumes = _volumes(pair, shown["rank"], steps) if is_named else None
    unit = words.unit(shown)
    headline = words.headline(checks, steps, unit) if is_comparable else words.refusal(checks)
    statements = (
        words.statements(checks, steps, found, shown, pair.rows(queries.QUEUES))
        if is_comparable
        else ()
    )
    leaned = [headline.claim, *(statement.claim for statement in statements), "comparable"]
    leaned += [ledger.claim for ledger in found]
    if volumes is not None:
        leaned += [volumes.claim]
    return Comparison(
        a=a,
        b=b,
        gapscope_version=__version__,
        is_comparable=is_comparable,
        is_confounded=any(check.is_confounding for check in checks),
        unit=unit,
        shown_rank=shown["rank"],
        headline=headline,
        statements=statements,
        checks=checks,
        steps=steps if is_comparable else (),
        ledgers=found,
        volumes=volumes,
        claims=claims.used(leaned),
    )


def _check(row: Row) -> Check:
    return Check(
        area=row["area"],
        item=row["item"],
        a=row["a_value"],
        b=row["b_value"],
        verdict=row["verdict"],
        is_confounding=row["is_confounding"],
        detail=row["detail"],
    )


def _steps(pair: Rows, shown: Row) -> tuple[StepLine, ...]:
    return tuple(_step(row, shown) for row in pair.rows(queries.STEPS))


def _step(row: Row, shown: Row) -> StepLine:
    windows = [row["a_windows"], row["b_windows"]]
    if shown["projection"] == "device":
        mean = intervals.of_means([windows[0]], [windows[1]])[0]
        median = intervals.of_medians(*windows)
        share_low, share_high = intervals.of_ratio(*windows)
    else:
        counts = (shown["a_count"], shown["b_count"])
        mean = median = intervals.of_edges(row["a_mean"], row["b_mean"], *counts)
        share_low, share_high = intervals.of_edge_ratio(row["a_mean"], row["b_mean"], *counts)
    return StepLine(
        rank=row["subject"],
        a_count=row["a_count"],
        b_count=row["b_count"],
        a_median_ns=row["a_median"],
        b_median_ns=row["b_median"],
        median_delta_ns=row["median_delta"],
        median_delta_share=row["median_delta"] / row["a_median"],
        share_low=share_low,
        share_high=share_high,
        median_interval=median,
        mean_delta_ns=row["mean_delta"],
        mean_interval=mean,
        a_low_ns=row["a_min"],
        a_high_ns=row["a_max"],
        b_low_ns=row["b_min"],
        b_high_ns=row["b_max"],
    )


def _volumes(pair: Rows, rank: int, steps: tuple[StepLine, ...]) -> Volumes:
    rows = pair.rows(queries.VOLUMES)
    whole = next(line for line in steps if line.rank == rank).a_median_ns
    named = [
        row
        for row in rows
        if abs(row["volume_delta"]) >= _NAMED_SHARE * whole
        or row["a_launches"] is None
        or row["b_launches"] is None
    ]
    return Volumes(
        caption=f"Device ops of rank {rank} whose work volume changed by {_NAMED_SHARE:.1%} of A's "
        "step or more, or that only one run has. Volume is a sum of durations: waiting inside "
        "communication kernels and overlap are in it, so it sums to no step.",
        lines=tuple(
            VolumeLine(
                name=row["name"],
                time_class=row["time_class"],
                op_class=row["op_class"],
                a_launches=row["a_launches"],
                b_launches=row["b_launches"],
                a_ns=row["a_volume"],
                b_ns=row["b_volume"],
                delta_ns=row["volume_delta"],
            )
            for row in named
        ),
        left_out=len(rows) - len(named),
        query=queries.VOLUMES,
        claim="volume",
    )
