"""Communication by library, copies by direction: their volume, and what the step waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report.document import Column, Statement, Table
from gapscope.report.facts import table
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row
    from gapscope.report.queries import Window

# Roles that move data or wait for others to, and those around them that a dispatcher has too.
_TRANSPORT = ("transport", "synchronization")


def families(window: Window) -> str:
    """Communication and packing of one window, by library and by what it does there."""
    return f"""\
SELECT
    level, family, role, is_communication, op_count,
    volume_ns, exposed_ns, blocking_ns, overlapped_ns, busy_ns
FROM v1.family_time
WHERE {window.where}
ORDER BY
    NOT is_communication, level <> 'total',
    max(volume_ns) OVER (PARTITION BY is_communication, family) DESC, family,
    level, volume_ns DESC, role"""


def copies(window: Window, level: str) -> str:
    """Copies of one window: `direction`, or by memory kinds and `stream` as well."""
    return f"""\
SELECT
    copy_kind, src_memory, dst_memory, stream, op_count, bytes, volume_ns, busy_ns, occupancy,
    gb_s, best_gb_s, peak_gb_s, peak_source, gb_s / peak_gb_s AS peak_share, blocking_ns,
    pageable_count, default_stream_count, sync_call_count, sync_call_ns, limits
FROM v1.copy_time
WHERE {window.where} AND level = '{level}'
ORDER BY busy_ns DESC, copy_kind, src_memory, dst_memory, stream
LIMIT 40"""


def is_limited_by_copies(facts: Facts) -> bool:
    """Whether an engine is busy all the time with copies, or compute is seen to wait for them."""
    return facts.window is not None and any(
        row["limits"] for row in facts.rows(copies(facts.window, "direction"), facts.window.rank)
    )


def statements(facts: Facts) -> list[Statement]:
    """What communication and copies hold of the window that is shown, and what that proves."""
    if facts.window is None:
        return []
    return [*_communication(facts), *_copies(facts)]


def tables(facts: Facts) -> list[Table]:
    """Both in numbers."""
    if facts.window is None:
        return []
    where = _where(facts)
    made = []
    rows = facts.rows(families(facts.window), facts.window.rank)
    if rows:
        made.append(
            table(
                "families",
                f"Communication and dispatchers by library and role, {where}",
                "Volume is a sum of durations. Exposed is an upper bound of what hiding it could "
                "give, not a gain; families exposed together count in each. Blocking is what "
                "issued compute waited for by recorded edges. Packing is in no total.",
                "families",
                families(facts.window),
                rows,
                (
                    Column("level", "level", "code"),
                    Column("family", "library", "code"),
                    Column("role", "role", "code"),
                    Column("op_count", "ops", "count"),
                    Column("volume_ns", "volume", "ns", "sum of durations"),
                    Column("exposed_ns", "exposed, at most", "ns", "no op but communication runs"),
                    Column("blocking_ns", "blocking", "ns", "issued compute waits for it"),
                    Column("overlapped_ns", "overlapped", "ns", "another op runs beside it"),
                    Column("busy_ns", "busy", "ns", "union of its ops"),
                ),
            )
        )
    for level, title in (("direction", "direction"), ("stream", "memory and stream")):
        rows = facts.rows(copies(facts.window, level), facts.window.rank)
        if rows:
            made.append(
                table(
                    f"copies-by-{level}",
                    f"Copies by {title}, {where}",
                    "Busy is how much of the window the engine of that direction works. The best "
                    "rate is the fastest copy of 4 MiB or more in the capture: measured, and no "
                    "peak of the link. Without a limit nothing shows that copies hold the step.",
                    "copies",
                    copies(facts.window, level),
                    rows,
                    _COPY_COLUMNS if level == "stream" else _DIRECTION_COLUMNS,
                    is_open=level == "direction",
                )
            )
    return made


_RATES = (
    Column("op_count", "copies", "count"),
    Column("bytes", "bytes", "B"),
    Column("busy_ns", "busy", "ns"),
    Column("occupancy", "of the window", "share"),
    Column("gb_s", "rate", "GB/s"),
    Column("best_gb_s", "best in the capture", "GB/s"),
    Column("peak_gb_s", "stated peak", "GB/s"),
    Column("peak_source", "stated by"),
    Column("blocking_ns", "blocking", "ns", "issued compute waits for it"),
    Column("pageable_count", "pageable", "count", "from or to memory that the host must stage"),
    Column(
        "default_stream_count", "default stream", "count", "wait for other streams and they for it"
    ),
    Column("sync_call_count", "synchronous calls", "count", "return when the copy is done"),
    Column("sync_call_ns", "host in these", "ns"),
    Column("limits", "limit shown", "code"),
)
_DIRECTION_COLUMNS = (Column("copy_kind", "direction"), *_RATES)
_COPY_COLUMNS = (
    Column("copy_kind", "direction"),
    Column("src_memory", "from"),
    Column("dst_memory", "to"),
    Column("stream", "stream", "id"),
    *_RATES,
)


def _where(facts: Facts) -> str:
    if facts.projection == "device":
        return f"step {facts.at.step_id} of rank {facts.at.rank}"
    return f"the capture of rank {facts.at.rank}"


def _measures(row: Row) -> str:
    return (
        f"volume {value(row['volume_ns'], 'ns')}, exposed {value(row['exposed_ns'], 'ns')}, "
        f"blocking {value(row['blocking_ns'], 'ns')}, overlapped "
        f"{value(row['overlapped_ns'], 'ns')}"
    )


def _communication(facts: Facts) -> list[Statement]:
    rows = facts.rows(families(facts.at), facts.at.rank)
    total = next((row for row in rows if row["level"] == "total"), None)
    if total is None:
        return []
    summary = (
        f"Communication and dispatchers in {_where(facts)}: {_measures(total)}. Volume is a sum "
        "of durations and says nothing of what the step waits for; exposed is an upper bound of "
        "what hiding it could give, not a gain."
    )
    said = [summary]
    own = [row for row in rows if row["level"] == "family" and row["is_communication"]]
    if len(own) > 1 or own[0]["family"] != "nccl":
        nccl = next((row for row in own if row["family"] == "nccl"), None)
        others = [f"{row['family']} {_measures(row)}" for row in own if row["family"] != "nccl"]
        alone = f"NCCL alone: {_measures(nccl)}" if nccl else "None of it is NCCL"
        said.append(f"{alone}. Beside it: {'; '.join(others)}.")
    around = [
        row
        for row in rows
        if row["level"] == "role" and row["family"] != "fsdp" and row["role"] not in _TRANSPORT
    ]
    if around:
        by_role: dict[str, int] = {}
        for row in around:
            by_role[row["role"]] = by_role.get(row["role"], 0) + row["volume_ns"]
        listed = ", ".join(f"{role} {value(ns, 'ns')}" for role, ns in sorted(by_role.items()))
        said.append(
            f"Around transport and synchronization, dispatchers spend in {listed} (volume)."
        )
    if not total["exposed_ns"] and not total["blocking_ns"]:
        said.append(
            "Other work runs beside all of it and no compute is seen to wait for it: nothing here "
            "shows that it holds the step, whatever its share of the summed kernel time."
        )
    return [Statement(text, "families") for text in said]


def _copies(facts: Facts) -> list[Statement]:
    rows = facts.rows(copies(facts.at, "direction"), facts.at.rank)
    if not rows:
        return []
    limited = [row for row in rows if row["limits"]]
    said = [
        Statement(
            f"{row['copy_kind'] or 'Copies of unknown direction'}: {row['limits']}. "
            f"{plural(row['op_count'], 'copy', 'copies')} keep the engine busy "
            f"{value(row['occupancy'], 'share')} of the {facts.noun}{_rate(row)}; compute waits "
            f"{value(row['blocking_ns'], 'ns')} for them.",
            "copies",
        )
        for row in limited
    ]
    if not limited:
        top = rows[0]
        said.append(
            Statement(
                f"Copies keep an engine busy {value(top['occupancy'], 'share')} of the "
                f"{facts.noun} at most ({top['copy_kind'] or 'direction unknown'}{_rate(top)}), "
                f"and compute waits {value(sum(row['blocking_ns'] for row in rows), 'ns')} for "
                "them: nothing here shows that they hold the step, whatever their share of the "
                "summed time.",
                "copies",
            )
        )
    return said


def _rate(row: Row) -> str:
    if row["gb_s"] is None:
        return ""
    if row["peak_gb_s"] is None:
        best = row["best_gb_s"]
        known = f" (best copy of the capture: {value(best, 'GB/s')})" if best else ""
        return f", at {value(row['gb_s'], 'GB/s')}{known}; the link's peak is not known"
    peak = value(row["peak_gb_s"], "GB/s")
    source = row["peak_source"]
    if row["copy_kind"] == "DtoD":
        source += "; half of the memory's rate, for a copy reads and writes"
    if row["peak_share"] > 1:
        return (
            f", at {value(row['gb_s'], 'GB/s')}, above the stated peak of {peak} ({source}), so "
            "that this peak is not what limits them"
        )
    return (
        f", at {value(row['gb_s'], 'GB/s')} of {peak} ({value(row['peak_share'], 'share')}; "
        f"{source})"
    )
