"""Section 3: where the time of each step went."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError
from gapscope.report import gantt, gap_budget, host_wait, metrics, model, queries, utilisation
from gapscope.report.document import Bar, Column, Figure, Section, Statement, Table, Waterfall
from gapscope.report.facts import code, table
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

_STEP_COLUMNS = (
    Column("rank", "rank", "id"),
    Column("step_id", "step", "id"),
    Column("step_ns", "step time", "ns"),
    Column("compute_ns", "compute", "ns", "union of compute kernels and opaque graphs"),
    Column("launch_starved_ns", "launch-starved", "ns", "the next compute op was not issued yet"),
    Column("blocking_ns", "blocking", "ns", "issued; its latest recorded producer still ran"),
    Column("stalled_ns", "stalled", "ns", "issued; no recorded reason"),
    Column("tail_ns", "tail", "ns", "after the last compute op of the window"),
    Column(
        "exposed_comm_ns",
        "exposed comm.",
        "ns",
        "communication minus every other device op: an upper bound of what hiding it could give",
    ),
    Column("comm_ns", "comm.", "ns", "union of communication kernels"),
    Column("copy_ns", "copies", "ns", "union of memory copies"),
    Column("busy_ns", "device busy", "ns", "union of all device ops"),
    Column("idle_ns", "device idle", "ns", "step minus device busy"),
    Column("label", "label", "code"),
    Column("boundary", "boundary", "text", "why a step stays out of medians and verdicts"),
)

# Rows of one table; more are one query away.
ROW_LIMIT = 200

# Timelines beside that of the rank in focus: as many as the budget of boxes can still show.
_OTHER_TIMELINES = (gantt.MARK_BUDGET - gantt.MARK_LIMIT) // gantt.MARK_FLOOR


def section(facts: Facts) -> Section:
    """Timelines, and the tables behind them."""
    if facts.focus is None or facts.window is None:
        return Section(
            "budget",
            "Per-step budget",
            (Statement("No budget: no window of this capture holds device activity.", "capture"),),
        )
    return Section(
        id="budget",
        title="Per-step budget",
        statements=tuple(_statements(facts)),
        figures=_figures(facts),
        tables=_tables(facts),
        missing=(
            *(() if facts.model.has_bound else (model.no_bound(facts.model),)),
            *utilisation.missing(facts),
        ),
    )


def _statements(facts: Facts) -> list[Statement]:
    said = [
        Statement(
            "Times are lengths of unions of intervals on the device; step = compute + "
            "launch-starved + blocking + stalled + tail, exactly. A value with n is that of a "
            f"rank's {facts.usual}, with the smallest and largest one over n steps.",
            "budget",
        )
    ]
    if facts.model.has_bound:
        said += gap_budget.statements(facts)
    said += [
        Statement(f"Ranks {ranks} share one device and contend for it.", "capture")
        for ranks in facts.shared
    ]
    left_out = [row for row in facts.steps if row["boundary"]]
    if left_out:
        said.append(
            Statement(
                f"{plural(len(left_out), 'boundary step')} of {len(facts.steps):,} (all ranks "
                "together) not counted in medians. A boundary step is one whose length says little "
                "of the others: warm-up, profiler activity inside it, or a cut by the capture.",
                "window",
            )
        )
    unmatched = facts.rows(queries.UNMATCHED)
    if unmatched:
        count = unmatched[0]["name_count"]
        names = ", ".join(
            f"{code(row['name'], 60)} ({value(row['volume_share'], 'share')})" for row in unmatched
        )
        said.append(
            Statement(
                f"No classification rule knew {plural(count, 'kernel name')}, "
                f"{value(unmatched[0]['all_share'], 'share')} of all device work, counted as "
                f"{unmatched[0]['time_class']}: {names}{' and more' if count > 3 else ''}.",
                "classes",
            )
        )
    said += host_wait.statements(facts)
    said += metrics.statements(facts)
    empty = [row["rank"] for row in facts.op_counts if not row["op_count"]]
    if empty:
        said.append(
            Statement(
                f"No device activity on {plural(len(empty), 'rank')} "
                f"({', '.join(str(rank) for rank in empty[:8])}): no budget there.",
                "capture",
            )
        )
    return said


def _figures(facts: Facts) -> tuple[Figure, ...]:
    figures: list[Figure] = []
    first = gantt.figure(facts, facts.at, facts.top["step_ns"], gantt.MARK_LIMIT, is_open=True)
    if first is not None:
        if len(facts.summary) > 1 + _OTHER_TIMELINES:
            note = (
                f"Timelines are those of {1 + _OTHER_TIMELINES} of {len(facts.summary)} ranks: "
                "where compute is absent longest."
            )
            first = replace(first, notes=(*first.notes, note))
        figures.append(first)
    chain = gap_budget.chain_figure(facts) if facts.model.has_bound else None
    if chain is not None:
        figures.append(chain)
    room = gantt.MARK_BUDGET - gantt.MARK_LIMIT
    shown = [row for row in facts.summary if row is not facts.focus][:_OTHER_TIMELINES]
    for row in shown:
        window = queries.Window(row["rank"], facts.projection, row["median_step_id"])
        limit = min(gantt.MARK_LIMIT, room // len(shown))
        other = gantt.figure(facts, window, row["step_ns"], limit, is_open=False)
        if other is not None:
            figures.append(other)
    return tuple(figures)


def waterfall(facts: Facts) -> Waterfall:
    """The first figure: the median step of the rank in focus, part by part."""
    if facts.model.has_classes:
        return gap_budget.waterfall(facts)
    query = queries.budget(facts.at)
    parts = facts.rows(query)[0]
    step = parts["step_ns"]
    bars = [Bar("observed", "observed", 0, step, 1.0)]
    top = step
    for name, label in (
        ("launch_starved", "launch-starved"),
        ("blocking", "blocking"),
        ("stalled", "stalled"),
        ("tail", "tail"),
        ("compute", "compute"),
    ):
        amount = parts[f"{name}_ns"]
        top -= amount
        bars.append(Bar(label, name, top, amount, amount / step))
    if top != 0:
        raise GapscopeError(
            "budget-does-not-close",
            f"step_budget of rank {facts.at.rank}, step {facts.at.step_id} misses {top} ns",
            "report this: it is a bug in GapScope; `gapscope doctor` names the failing audit",
        )
    largest = max(bars[1:5], key=lambda bar: bar.value_ns)
    noun = f"step {facts.at.step_id}" if facts.projection == "device" else "the capture"
    return Waterfall(
        id="waterfall",
        title="From the observed step down to compute",
        caption=f"{value(step, 'ns')} of {noun} on rank {facts.at.rank}: compute "
        f"{value(parts['compute_ns'], 'ns')}; the largest part without compute is {largest.label}, "
        f"{value(largest.value_ns, 'ns')} ({value(largest.share, 'share')}).",
        bars=tuple(bars),
        query=query,
        claim="split",
    )


def _tables(facts: Facts) -> tuple[Table, ...]:
    window = facts.at
    where = (
        f"step {window.step_id} of rank {window.rank}"
        if facts.projection == "device"
        else f"the capture of rank {window.rank}"
    )
    has_bound = facts.model.has_bound
    return (
        *(gap_budget.tables(facts) if has_bound else ()),
        _step_table(facts),
        *utilisation.tables(facts),
        table(
            "pieces",
            f"Compute-absent pieces, {where}",
            "What each class of compute-absent time is made of. Pieces below 30 us are about the "
            "size of launch and dependency latencies.",
            "split",
            queries.pieces(window),
            facts.rows(queries.pieces(window), window.rank),
            (
                Column("absent_class", "class", "class"),
                Column("piece_count", "pieces", "count"),
                Column("total_ns", "total", "ns"),
                Column("median_ns", "median", "ns"),
                Column("max_ns", "largest", "ns"),
                Column("short_count", "pieces < 30 us", "count"),
                Column("short_ns", "in these", "ns"),
            ),
            is_open=not facts.model.has_classes,
        ),
        table(
            "blame",
            f"Who held the blocking time, {where}",
            "Blocking time followed backwards over recorded producers. `running` is work; "
            "`launch_starved` and `stalled` mean that the producer itself came late.",
            "blame",
            queries.blame_names(window),
            facts.rows(queries.blame_names(window), window.rank),
            (
                Column("reason", "it was", "code"),
                Column("time_class", "class", "class"),
                Column("name", "op", "code"),
                Column("blamed_ns", "time", "ns"),
                Column("step_share", f"of {facts.noun}", "share"),
                Column("piece_count", "pieces", "count"),
            ),
            notes=_largest(facts.rows(queries.blame_names(window), window.rank)),
            is_open=not facts.model.has_classes,
        ),
        table(
            "kernels",
            f"Device ops above 1 % of the {facts.noun}, {where}",
            "Work volume: a sum of durations, so overlap counts twice and shares may exceed 100 % "
            "together.",
            "classes",
            queries.kernels(window),
            facts.rows(queries.kernels(window), window.rank),
            (
                Column("name", "name", "code"),
                Column("time_class", "class", "class"),
                Column("op_class", "finer", "code"),
                Column("rule_id", "rule", "code", "`unmatched`: no rule knew the name"),
                Column("op_count", "ops", "count"),
                Column("volume_ns", "volume", "ns"),
                Column("step_share", f"of {facts.noun}", "share"),
            ),
        ),
        table(
            "classes",
            f"Classes, {where}",
            "Volume is a sum of durations; busy is a union. Shares of busy overlap, so they do "
            "not add up to 100 %.",
            "classes",
            queries.classes(window),
            facts.rows(queries.classes(window), window.rank),
            (
                Column("time_class", "class", "class"),
                Column("op_class", "finer", "code"),
                Column("op_count", "ops", "count"),
                Column("unmatched_count", "unmatched", "count", "their name no rule knew"),
                Column("volume_ns", "volume", "ns"),
                Column("volume_share", "of all volume", "share"),
                Column("busy_ns", "busy", "ns"),
                Column("busy_share", f"of {facts.noun}", "share"),
            ),
        ),
        table(
            "rules",
            "Classification rules, all ranks",
            "Every rule in the order of what it decided; rules are tried by priority and the first "
            "match counts.",
            "classes",
            queries.RULES,
            facts.rows(queries.RULES),
            (
                Column("rule_id", "rule", "code"),
                Column("priority", "priority", "id"),
                Column("pattern", "pattern", "code"),
                Column("time_class", "class", "class"),
                Column("op_class", "finer", "code"),
                Column("op_count", "ops", "count"),
                Column("volume_ns", "volume", "ns"),
                Column("volume_share", "of all volume", "share"),
            ),
            is_open=False,
        ),
        table(
            "streams",
            f"Streams of rank {window.rank}, whole capture",
            "Busy is a union, the classes are work volume.",
            "budget",
            queries.streams(window.rank),
            facts.rows(queries.streams(window.rank), window.rank),
            (
                Column("stream", "stream", "id"),
                Column("priority", "priority", "id"),
                Column("main_class", "mostly", "class"),
                Column("op_count", "ops", "count"),
                Column("busy_ns", "busy", "ns"),
                Column("compute_ns", "compute", "ns"),
                Column("communication_ns", "comm.", "ns"),
                Column("packing_ns", "packing", "ns"),
                Column("copy_ns", "copies", "ns"),
                Column("memset_ns", "memsets", "ns"),
            ),
            is_open=False,
        ),
        *metrics.tables(facts),
        *host_wait.tables(facts, where),
        _pacing_table(facts, where),
        table(
            "starved-host",
            f"The launching thread while compute was launch-starved, {where}",
            "Launch-starved time of the thread that issues the late op: inside its outermost API "
            "calls, and outside all of them.",
            "host",
            queries.starved_host(window),
            facts.rows(queries.starved_host(window), window.rank),
            (
                Column("place", "the thread was"),
                Column("tid", "thread", "id"),
                Column("name", "function", "code"),
                Column("call_count", "calls", "count"),
                Column("overlap_ns", "time", "ns"),
                Column("share", "of launch-starved", "share"),
            ),
            is_open=False,
        ),
        table(
            "api-calls",
            f"API calls of rank {window.rank}, whole capture",
            "Sums of call durations by function and thread, fifteen at most; calls may nest.",
            "host",
            queries.api_calls(window.rank),
            facts.rows(queries.api_calls(window.rank), window.rank),
            (
                Column("name", "function", "code"),
                Column("tid", "thread", "id"),
                Column("call_count", "calls", "count"),
                Column("volume_ns", "sum", "ns"),
                Column("median_ns", "median", "ns"),
                Column("max_ns", "longest", "ns"),
                Column("failed_count", "failed", "count"),
            ),
            is_open=False,
        ),
    )


def _largest(rows: list[Row]) -> tuple[str, ...]:
    if not rows or rows[0]["name_count"] <= len(rows):
        return ()
    return (f"The {len(rows)} largest of {rows[0]['name_count']:,}.",)


def _step_table(facts: Facts) -> Table:
    focus = facts.at.rank
    if facts.projection == "capture" and not facts.steps:
        query, rows = queries.CAPTURE, facts.rows(queries.CAPTURE)
        title, caption = "Whole capture, by rank", "No step was recognised: one row a rank."
    else:
        query = queries.STEPS.replace("ORDER BY", f"ORDER BY b.rank <> {focus},")
        query += f"\nLIMIT {ROW_LIMIT}"
        rows = facts.rows(query)
        title = "Steps"
        caption = f"One row a step in the device projection, rank {focus} first."
        if facts.projection == "capture":
            caption += " All are boundary steps, so figures above are of the whole capture."
    notes = []
    if len(facts.steps) > len(rows):
        notes.append(f"{len(rows)} of {len(facts.steps)} rows; the query without LIMIT has all.")
    return table(
        "steps",
        title,
        caption,
        "budget",
        query,
        rows,
        _STEP_COLUMNS,
        row_ids=tuple(_step_id(row, focus) for row in rows),
        notes=tuple(notes),
    )


def _step_id(row: Row, focus: int) -> str:
    if row["label"] == "capture":
        return f"capture-rank-{row['rank']}"
    return f"step-{row['step_id']}" + ("" if row["rank"] == focus else f"-rank-{row['rank']}")


def _pacing_table(facts: Facts, where: str) -> Table:
    query = queries.pacing(facts.at)
    return table(
        "pacing",
        f"Launch pacing, {where}",
        "How far each launching thread ran ahead of the device: start of an op minus return of its "
        "launch. An op is late when that is below 20 us.",
        "host",
        query,
        facts.rows(query),
        (
            Column("step_id", "step", "id"),
            Column("launch_tid", "thread", "id"),
            Column("launch_count", "launches", "count"),
            Column("op_count", "ops", "count"),
            Column("launches_per_ms", "rate", "1/ms"),
            Column("run_ahead_p05_ns", "ahead p5", "ns"),
            Column("run_ahead_median_ns", "median", "ns"),
            Column("run_ahead_p95_ns", "p95", "ns"),
            Column("late_count", "late ops", "count"),
        ),
        is_open=False,
    )
