"""What kind of capture this is, and what kind of pieces a class of time is made of.

Advice is only given where it applies: by vendor, source format, and what the window holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.report import queries
from gapscope.units import value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

_AMD = re.compile(r"\bamd\b|instinct|radeon|\bgfx\d", re.IGNORECASE)

# From this share of a class on, one piece is the finding.
_ONE_PIECE = 0.8
# Pieces this long (as in `queries.pieces`) come from the host or from another op, not from what a
# start costs.
_LONG_NS = 1_000_000
# Kernels shorter than this cost about as much to launch as to run.
_SHORT_KERNEL_NS = 20_000
# Shares from which on a trait is said to be there.
_HALF = 0.5
_AXIS = 0.3
_BOTH_WAYS = 0.2
_LAYOUT = 0.05
# Starts and ends of ops that follow each other differ by about this much.
_GRAIN_NS = 1_000


@dataclass(frozen=True, slots=True)
class Setting:
    """`tags`: what tips may ask for. `pinned_rate`: what to say of copies from pinned memory."""

    api: str
    tags: frozenset[str]
    pinned_rate: str


def setting(facts: Facts, copies: list[Row]) -> Setting:
    """The setting of the rank in focus."""
    rank = facts.at.rank
    about = next((row for row in facts.ranks if row["rank"] == rank), {})
    calls = facts.rows(queries.api_calls(rank), rank)
    is_amd = bool(_AMD.search(about.get("device_name") or "")) or any(
        (row["name"] or "").startswith("hip") for row in calls
    )
    is_fsdp = facts.rows(queries.fsdp_ranges(rank), rank)[0]["range_count"] > 0
    host = [
        row
        for row in copies
        if row["rank"] == rank and row["kind"] == "memcpy" and row["copy_kind"] in ("HtoD", "DtoH")
    ]
    # Rows come by volume: the first is the copy that costs most.
    is_pageable = bool(host) and (host[0]["src_memory"] or "").lower() == "pageable"
    tags = {
        "hip" if is_amd else "cuda",
        about.get("source_format") or "",
        "fsdp" if is_fsdp else "no-fsdp",
        "pageable" if is_pageable else "not-pageable",
    }
    if facts.top["comm_ns"]:
        tags.add("comm")
    tags |= _traits(facts)
    rate = ""
    if host and (host[0]["src_memory"] or "").lower() == "pinned" and host[0]["bytes_per_ns"]:
        rate = (
            "The host memory is pinned already and copies run at "
            f"{value(host[0]['bytes_per_ns'], 'GB/s')}: what is left is to overlap them, or to "
            "copy less."
        )
    return Setting("HIP" if is_amd else "CUDA", frozenset(tags), rate)


def _traits(facts: Facts) -> set[str]:
    """Words that the window's own kernels, copies, launches and collectives have earned."""
    row = facts.rows(queries.traits(facts.at), facts.at.rank)[0]
    copied = row["to_device_ns"] + row["to_host_ns"]
    starved = facts.rows(queries.starved_host(facts.at), facts.at.rank)
    outside = sum(one["overlap_ns"] for one in starved if one["place"] == "outside calls")
    earned = {
        "no-graph": not row["graph_launch_count"] and not row["graph_ns"],
        "opaque-graph": row["graph_ns"] > row["compute_ns"],
        "kernel": row["compute_ns"] > row["graph_ns"],
        "short-kernels": (row["compute_median_ns"] or _SHORT_KERNEL_NS) < _SHORT_KERNEL_NS,
        "outside-calls": bool(starved) and outside >= _HALF * starved[0]["starved_ns"],
        "layout": row["layout_ns"] > _LAYOUT * (row["compute_ns"] + row["graph_ns"]),
        "both-ways": min(row["to_device_ns"], row["to_host_ns"]) > _BOTH_WAYS * copied,
        "late-rank": (row["rank_wait_ns"] or 0) > _HALF * max(facts.top["comm_ns"], 1),
    }
    blocking_ns = facts.top["blocking_ns"]
    axes = {
        f"axis-{one['axis']}"
        for one in facts.rows(queries.axes(facts.at), facts.at.rank)
        if one["overlap_ns"] >= _AXIS * blocking_ns
    }
    return {tag for tag, is_earned in earned.items() if is_earned} | axes


@dataclass(frozen=True, slots=True)
class Shape:
    """The pieces of one class: `tag` is long (few long ones), short (many short ones) or grain."""

    row: Row | None
    tag: str

    @classmethod
    def of(cls, row: Row | None) -> Shape:
        """The shape of a row of `queries.pieces`."""
        if row is None:
            return cls(None, "short")
        is_long = row["median_ns"] > _LONG_NS or 2 * row["long_ns"] > row["total_ns"]
        if row["max_share"] >= _ONE_PIECE or is_long:
            return cls(row, "long")
        return cls(row, "grain" if row["median_ns"] < _GRAIN_NS else "short")

    def said(self, absent_class: str) -> list[str]:
        """Sentences about the pieces."""
        row = self.row
        if row is None:
            return []
        if row["piece_count"] == 1:
            return ["It is one piece: look at that one, it may be an accident of the capture."]
        short = row["short_count"]
        below = (
            f"{short:,} {'is' if short == 1 else 'are'} below 30 us and "
            f"{'holds' if short == 1 else 'hold'} {value(row['short_ns'], 'ns')}"
            if short
            else "none is below 30 us"
        )
        said = [
            (
                f"{row['piece_count']:,} pieces, median {value(row['median_ns'], 'ns')}, largest "
                f"{value(row['max_ns'], 'ns')}; {below}."
            )
        ]
        if row["long_count"] > 1:
            said.append(
                f"{row['long_count']:,} pieces above 1 ms hold {value(row['long_ns'], 'ns')} of "
                f"{value(row['total_ns'], 'ns')}."
            )
        if row["max_share"] >= _ONE_PIECE:
            said.append(
                f"One piece is {value(row['max_share'], 'share')} of it: look at that one first, "
                "it may be an accident of the capture."
            )
        if absent_class == "stalled" and row["median_ns"] < _GRAIN_NS:
            said.append(
                "Half of the pieces are below 1 us: that is the granularity of timestamps between "
                "ops that follow each other, not time to win back."
            )
        return said
