"""Section 4: ranks beside each other, and what they sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import gap_verdict, heat, model_queries, queries, survey_tables, traffic
from gapscope.report.document import Column, Quantity, Section, Statement, Table
from gapscope.report.facts import quantity, table
from gapscope.units import listed, plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

# So many ranks a table; the query without its LIMIT has all.
_RANKS_SHOWN = 64
# So many parts are told of in words.
_PARTS_SAID = 8

NO_CLOCK = Statement(
    "No skew, no last arrival and no straggler: the clocks of these ranks cannot be compared, "
    "because neither the captures nor matched collectives relate them. A longer collective on one "
    "rank may be waiting for another.",
    "clock",
)

_MEASURES = ("step", "compute", "compute_absent", "exposed_comm", "comm", "copy", "idle")


def section(facts: Facts, copies: list[Row]) -> Section:
    """Ranks, heat map, communication and copies."""
    communication = facts.rows(queries.COMMUNICATION)
    collectives = facts.rows(queries.COLLECTIVES)
    statements: list[Statement] = []
    if facts.focus is not None:
        statements += _spread(facts)
        if _is_surveyed(facts):
            statements += survey_tables.statements(facts)
        if not communication:
            statements.append(
                Statement(
                    "No communication kernels in this capture: nothing to say about collectives.",
                    "classes",
                )
            )
        statements += traffic.statements(facts)
    else:
        statements.append(Statement("No rank is budgeted.", "capture"))
    clocks = facts.rows(model_queries.CLOCKS) if len(facts.ranks) > 1 else []
    is_comparable = all(row["offset_ns"] is not None for row in clocks)
    if clocks and is_comparable:
        statements += _arrivals(facts, clocks)
    missing = () if is_comparable else (NO_CLOCK,)
    return Section(
        id="ranks",
        title="Rank and communication findings",
        statements=tuple(statements),
        figures=heat.maps(facts),
        tables=(
            *(survey_tables.tables(facts) if _is_surveyed(facts) else ()),
            *_tables(facts, communication, collectives, copies),
            *traffic.tables(facts),
            *(_across(facts, clocks) if clocks else ()),
        ),
        missing=missing,
    )


def _is_surveyed(facts: Facts) -> bool:
    """Whether there are ranks beside each other, with steps."""
    return len(facts.ranks) > 1 and facts.projection == "device" and bool(facts.summary)


def _arrivals(facts: Facts, clocks: list[Row]) -> list[Statement]:
    """Who came last how often, and who waits for whom."""
    rows = [row for row in facts.rows(model_queries.LAST) if row["matched_count"]]
    if not rows:
        return []
    residual = max((row["residual_ns"] or 0 for row in clocks), default=0)
    total = sum(row["last_count"] for row in rows)
    clear = sum(row["clear_last_count"] for row in rows)
    top = rows[0]
    most = (
        f": rank {top['rank']} most often, in {top['clear_last_count']:,}; how often is not how "
        "much"
        if clear
        else ""
    )
    said = [
        Statement(
            f"Of {plural(total, 'matched collective')} of the whole capture, {clear:,} "
            f"{'has' if clear == 1 else 'have'} a last rank, more than three clock residuals "
            f"({value(3 * residual, 'ns')}) after the rank before it{most}.",
            "arrivals",
        )
    ]
    unmatched = sum(row["op_count"] - row["matched_count"] for row in rows)
    if unmatched:
        said.append(
            Statement(
                f"{plural(unmatched, 'collective operation')} could not be matched on all ranks "
                "and counted for nothing here.",
                "arrivals",
            )
        )
    return said + (gap_verdict.skew(facts, limit=8) if facts.model.has_classes else [])


def _across(facts: Facts, clocks: list[Row]) -> list[Table]:
    """Tables that compare instants of ranks."""
    found = []
    arrivals = facts.rows(model_queries.ARRIVALS)
    if arrivals:
        found.append(
            table(
                "arrivals",
                "Who came last, who waited",
                "Collectives matched across ranks, on one clock, whole capture. For sure: by more "
                "than three clock residuals after the rank before it. Waited: from the own start "
                "to the last arrival; jitter: own duration less the shortest one. Both are work "
                "volume.",
                "arrivals",
                model_queries.ARRIVALS,
                arrivals,
                (
                    Column("rank", "rank", "id"),
                    Column("type", "type", "code"),
                    Column("process_group", "process group"),
                    Column("op_count", "ops", "count"),
                    Column("matched_count", "matched", "count"),
                    Column("last_count", "came last", "count"),
                    Column("clear_last_count", "for sure", "count"),
                    Column("median_transfer_ns", "transfer, median", "ns"),
                    Column("wait_ns", "waited", "ns"),
                    Column("jitter_wait_ns", "jitter", "ns"),
                ),
            )
        )
    found.append(
        table(
            "clocks",
            "Clocks of the ranks",
            "What is added to a rank's times to compare ranks, and how far its collectives end "
            "from those of the others (5th to 95th percentile). Below the residual a difference "
            "is not resolved. By step: each step has an offset of its own, this is the one in the "
            "middle; steps that a jump touches have none.",
            "clock",
            f"{model_queries.CLOCKS}\nLIMIT {_RANKS_SHOWN}",
            clocks[:_RANKS_SHOWN],
            (
                Column("rank", "rank", "id"),
                Column("method", "from"),
                Column("offset_ns", "offset", "ns"),
                Column("drift_ppb", "drift, ppb", "count"),
                Column("residual_p5_ns", "p5", "ns"),
                Column("residual_p95_ns", "p95", "ns"),
                Column("residual_ns", "residual", "ns"),
                Column("match_count", "matched", "count"),
                Column("jump_ns", "jump", "ns"),
                Column("jump_steps", "in or beside steps"),
            ),
            is_open=len(clocks) <= 8,
        )
    )
    return found


def _spread(facts: Facts) -> list[Statement]:
    if len(facts.summary) < 2:
        rank = facts.summary[0]["rank"]
        return [
            Statement(f"One rank is budgeted, rank {rank}: nothing to compare it with.", "ranks")
        ]
    of_part: dict[str, list[Row]] = {}
    for row in facts.summary:
        of_part.setdefault(facts.parts[row["rank"]], []).append(row)
    compared = [(part, rows) for part, rows in of_part.items() if len(rows) > 1]
    said = [
        _spread_of(facts, rows, f"{part}: " if len(of_part) > 1 else "")
        for part, rows in compared[:_PARTS_SAID]
    ]
    if len(compared) > _PARTS_SAID:
        rest = len(compared) - _PARTS_SAID
        said.append(Statement(f"{plural(rest, 'further part')} stand in the table.", "ranks"))
    alone = sorted((rows[0]["rank"], part) for part, rows in of_part.items() if len(rows) == 1)
    if alone:
        named = listed([f"{rank} ({part})" for rank, part in alone])
        said.append(
            Statement(
                f"Compared with no other, being the only one of its part: rank {named}.", "parts"
            )
        )
    said += [
        Statement(
            f"Ranks {ranks} share one device: their differences are contention as well.", "capture"
        )
        for ranks in facts.shared
    ]
    return said


def _spread_of(facts: Facts, rows: list[Row], begin: str) -> Statement:
    """How far ranks of one part are apart."""
    return Statement(
        f"{begin}A rank's {facts.usual} lasts {_ends(rows, 'step_ns')}; compute in it "
        f"{_ends(rows, 'compute_ns')}.",
        "ranks",
    )


def _ends(rows: list[Row], key: str) -> str:
    """The least and the most, each with its rank; one number where both read alike."""
    ordered = sorted(rows, key=lambda row: (row[key], row["rank"]))
    low, high = (f"{value(row[key], 'ns')}" for row in (ordered[0], ordered[-1]))
    if low == high:
        return f"{low} on every rank"
    return f"from {low} (rank {ordered[0]['rank']}) to {high} (rank {ordered[-1]['rank']})"


def _rank_table(facts: Facts) -> Table:
    columns = (
        Column("rank", "rank", "id"),
        Column("median_step_id", "step", "id"),
        *(
            Column(name, label, "ns")
            for name, label in zip(
                _MEASURES,
                (
                    "step",
                    "compute",
                    "compute absent",
                    "exposed comm.",
                    "comm.",
                    "copies",
                    "device idle",
                ),
                strict=True,
            )
        ),
    )
    summary, query = facts.summary, facts.summary_query
    notes: tuple[str, ...] = ()
    if len(summary) > _RANKS_SHOWN:
        query = (
            f"FROM ({query}\n)\nORDER BY rank = {facts.top['rank']} DESC, compute_absent_ns DESC, "
            f"rank\nLIMIT {_RANKS_SHOWN}"
        )
        left = f"{_RANKS_SHOWN} of {plural(len(summary), 'rank')}, that of the verdict first"
        notes = (f"{left}; `gapscope ranks --all` lists every one.",)
        summary = facts.rows(query)
    rows: list[dict[str, int | Quantity]] = [
        {
            "rank": row["rank"],
            "median_step_id": row["median_step_id"],
            **{name: quantity(row, name) for name in _MEASURES},
        }
        for row in summary
    ]
    return table(
        "ranks-table",
        "Ranks",
        f"{facts.usual.capitalize()} of each rank (n, smallest to largest); longest without "
        "compute first.",
        "ranks",
        query,
        rows,
        columns,
        row_ids=tuple(f"rank-{row['rank']}" for row in summary),
        notes=notes,
    )


def _tables(
    facts: Facts, communication: list[Row], collectives: list[Row], copies: list[Row]
) -> list[Table]:
    tables = []
    if facts.summary:
        tables.append(_rank_table(facts))
    if communication:
        tables.append(
            table(
                "communication",
                "Communication kernels, all ranks, whole capture",
                "Durations contain waiting for other ranks; the shortest is nearest to "
                "the transfer.",
                "transfers",
                queries.COMMUNICATION,
                communication,
                (
                    Column("name", "kernel", "code"),
                    Column("rank_count", "ranks", "count"),
                    Column("op_count", "ops", "count"),
                    Column("volume_ns", "volume", "ns"),
                    Column("min_ns", "shortest", "ns"),
                    Column("max_ns", "longest", "ns"),
                ),
            )
        )
    if collectives:
        tables.append(
            table(
                "collectives",
                "Collective calls, all ranks, whole capture",
                "As the framework recorded them; durations are those of the device ops that "
                "they lead to.",
                "transfers",
                queries.COLLECTIVES,
                collectives,
                (
                    Column("type", "type", "code"),
                    Column("process_group", "process group"),
                    Column("group_size", "group size", "count"),
                    Column("dtype", "type of element", "code"),
                    Column("rank_count", "ranks", "count"),
                    Column("call_count", "calls", "count"),
                    Column("op_count", "with device op", "count"),
                    Column("min_ns", "shortest", "ns"),
                    Column("median_ns", "median", "ns"),
                    Column("max_ns", "longest", "ns"),
                ),
            )
        )
    if copies:
        tables.append(
            table(
                "copies",
                "Copies and memsets, whole capture",
                "Rate is bytes over work volume.",
                "transfers",
                queries.COPIES,
                copies,
                (
                    Column("rank", "rank", "id"),
                    Column("kind", "kind", "code"),
                    Column("copy_kind", "direction"),
                    Column("src_memory", "from"),
                    Column("dst_memory", "to"),
                    Column("op_count", "ops", "count"),
                    Column("bytes", "bytes", "B"),
                    Column("volume_ns", "volume", "ns"),
                    Column("bytes_per_ns", "rate", "GB/s"),
                ),
            )
        )
    return tables
