"""What section 3 says with a bound: waterfall to T_lb, classes, bounds, chain, what-ifs, queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapscope.errors import GapscopeError
from gapscope.model.ladder import MECHANISMS
from gapscope.report import changes, model, model_queries, shares
from gapscope.report.document import Bar, Column, Gantt, Mark, Statement, Table, Waterfall
from gapscope.report.facts import table
from gapscope.units import value, values

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

_CLASS_HELP = {
    "R1": "late launch: what the op needs was there, the host had not issued it",
    "R2": "queue serialization: issued and ready, behind work that no rule puts before it",
    "R3": "cross-rank skew: a collective waits for its last rank",
    "H1": "structural: no compute of the step could run beside the awaited collective",
    "H2": "budget: compute could run beside it, but not enough is left",
    "floor": "what a start costs after everything it waits for",
    "unresolved": "no cause that a rule, a launch or a queue explains",
    "carried": changes.CARRIED,
    "work": "copies and packing on the compute engine",
    "compute": "compute kernels",
}

# Rows of a table; the query without LIMIT has all.
CAUSE_LIMIT = 16
RANK_LIMIT = 64
CHAIN_LIMIT = 400

_LANES = {"engine": ("compute engine", 0), "collective": ("collectives", 1), "copy": ("copies", 2)}
_KIND_CLASS = {
    **dict.fromkeys(("FWD", "BWD", "OPT"), "compute"),
    **dict.fromkeys(("AG", "RS", "AR", "COMM"), "communication"),
}

_RUNGS = {
    "": "nothing: replay as executed",
    "R1": "late launches",
    "R2": "queue serialization",
    "R3": "waiting for other ranks",
    "R1+R2+R3": "all three",
}


def waterfall(facts: Facts) -> Waterfall:
    """From the observed step over T_lb down to compute."""
    query = model_queries.parts(facts.at.rank, facts.at.step_id)
    row = facts.rows(query)[0]
    step = row["observed_ns"]
    bars = [Bar("observed", "observed", 0, step, 1.0)]
    top = step
    recoverable = [
        name for name in model_queries.RECOVERABLE if row[f"{name.lower()}_ns"] is not None
    ]
    for name in (*recoverable, *model_queries.BESIDE):
        top = _fall(bars, row, name, top)
    _reaches(facts, top, row["t_lb_ns"], "T_lb")
    bars.append(Bar("T_lb", "t_lb", 0, top, top / step))
    for name in (*model_queries.HARD, "work"):
        top = _fall(bars, row, name, top)
    _reaches(facts, top, row["compute_ns"], "compute")
    bars.append(Bar("compute", "compute", 0, top, top / step))
    return Waterfall(
        id="waterfall",
        title="From the observed step down to the bound, and to compute",
        caption=f"{value(step, 'ns')} of step {facts.at.step_id} on rank {facts.at.rank}: "
        f"{value(step - row['t_lb_ns'], 'ns')} above T_lb, "
        f"{value(row['h1_ns'] + row['h2_ns'], 'ns')} of hard idle below it, compute "
        f"{value(row['compute_ns'], 'ns')}.",
        bars=tuple(bars),
        query=query,
        claim="gap-classes",
        notes=(
            (
                "Recoverable: R3 waiting for another rank, R1 late launches, R2 queues. Hard "
                "while the program stays: H2 too little compute left to hide a collective, H1 "
                "none that could."
            ),
        ),
    )


def _fall(bars: list[Bar], row: Row, name: str, top: int) -> int:
    amount: int = row[f"{name.lower()}_ns"]
    label = f"{name} {model.NAMES[name]}" if name[0] in "RH" else model.NAMES[name]
    label = "other work" if name == "work" else label
    bars.append(Bar(label, name, top - amount, amount, amount / row["observed_ns"]))
    return top - amount


def _reaches(facts: Facts, top: int, level: int, name: str) -> None:
    if top != level:
        raise GapscopeError(
            "gap-does-not-close",
            f"step_gap of rank {facts.at.rank}, step {facts.at.step_id} misses {name} by "
            f"{top - level} ns",
            "report this: it is a bug in GapScope",
        )


def statements(facts: Facts) -> list[Statement]:
    """What stands before the tables."""
    known = facts.model
    said = [
        Statement(
            "With the rules of the workload: observed = compute + work + H1 + H2 + R1 + R2 + R3 + "
            "floor + unresolved + carried, and what is not compute, work or H lies above T_lb; "
            "both to the nanosecond.",
            "gap-classes",
        )
    ]
    fits = [
        row["detail"]
        for row in known.checks
        if row["check_name"] in ("rule_pack", "rule_violations") and row["status"] == "ok"
    ]
    if fits:
        said.append(Statement(f"Rules: {'; '.join(fits)}.", "rules"))
    if known.is_provisional:
        said.append(
            Statement(
                f"Classes of the gap are provisional: {known.why_no('verdict')}.", "model-checks"
            )
        )
    if not known.rungs:
        why = known.why_no("ladder") or known.why_no("verdict") or "no step was replayed"
        said.append(Statement(f"No what-if ladder: {why}.", "model-checks"))
    return said


def tables(facts: Facts) -> list[Table]:
    """Tables of section 3, those that hold rows."""
    known = facts.model
    found = [_gaps(facts), _causes(facts), _bounds(facts), _chain(facts)]
    if known.rungs:
        found += [_ladder(facts), _changes(facts)]
    return [*found, _queues(facts), _floors(facts)]


def _gaps(facts: Facts) -> Table:
    known = facts.model
    names = ("observed", "t_lb", "gap", *model_queries.PARTS)
    labels = {"observed": "observed", "t_lb": "T_lb", "gap": "observed - T_lb"}
    columns = (
        Column("rank", "rank", "id"),
        Column("step_id", "step", "id"),
        *(Column(name, labels.get(name, name), "ns", _CLASS_HELP.get(name, "")) for name in names),
    )
    rows: list[dict[str, Any]] = [
        {
            "rank": row["rank"],
            "step_id": row["step_id"],
            **{name: model.amount(row, name) for name in names},
        }
        for row in known.gaps[:RANK_LIMIT]
    ]
    return table(
        "gaps",
        f"Gap by rank in step {facts.at.step_id}, down to T_lb and to compute"
        + _provisional(facts),
        f"Step {facts.at.step_id} of each rank that has it (n, smallest to largest over the steps "
        "that count); the rank with the longest median step stands for the run. Carried: "
        f"{changes.CARRIED}.",
        "gap-classes",
        f"{model_queries.gaps()}\nLIMIT {RANK_LIMIT}",
        rows,
        columns,
        notes=_largest(RANK_LIMIT, len(known.gaps), "first"),
    )


def _largest(limit: int, count: int, which: str = "largest") -> tuple[str, ...]:
    return (f"The {limit} {which} of {count:,}.",) if count > limit else ()


def _provisional(facts: Facts) -> str:
    return " (provisional)" if facts.model.is_provisional else ""


def _causes(facts: Facts) -> Table:
    query = model_queries.causes(facts.at.rank, facts.at.step_id)
    rows = facts.rows(query)
    return table(
        "causes",
        f"Causes, step {facts.at.step_id} of rank {facts.at.rank}" + _provisional(facts),
        "Every piece of the step without compute has one class. Hidden: the lateness lies before "
        "the gap and shows inside it, as a transfer that could have been over.",
        "gap-classes",
        f"{query}\nLIMIT {CAUSE_LIMIT}",
        rows[:CAUSE_LIMIT],
        (
            Column("gap_class", "class", "class"),
            Column(
                "sub_cause",
                "cause",
                "code",
                "R3: the last rank's own reason; H2: late, but worth nothing",
            ),
            Column("culprit_rank", "last rank", "id"),
            Column("awaited_node", "waits for", "code"),
            Column("piece_count", "pieces", "count"),
            Column("total_ns", "time", "ns"),
            Column("hidden_ns", "of it hidden", "ns"),
            Column("step_share", "of step", "share"),
        ),
        notes=_largest(CAUSE_LIMIT, len(rows)),
    )


def _bounds(facts: Facts) -> Table:
    query = model_queries.bounds(facts.at.rank, facts.at.step_id)
    rows = [
        {"limits": row["limits"], "bound": model.ranged(row, "bound")} for row in facts.rows(query)
    ]
    return table(
        "bounds",
        f"T_lb under other limits, rank {facts.at.rank}",
        "What pins the step: where a line is much below T_lb, its limit is worth lifting. All are "
        "for the work as measured; the last two are one resource on its own.",
        "t-lb",
        query,
        rows,
        (Column("limits", "limits"), Column("bound", "shortest step", "ns")),
    )


def _chain(facts: Facts) -> Table:
    query = model_queries.chain(facts.at.step_id)
    rows = facts.rows(query)
    return table(
        "chain",
        f"Binding chain of T_lb, step {facts.at.step_id}, node by node",
        "Shortening a node of the chain shortens the bound, until another chain binds; nodes "
        "outside of it have slack. The rule says what ties a node to the one before.",
        "t-lb",
        f"{query}\nLIMIT {CHAIN_LIMIT}",
        rows[:CHAIN_LIMIT],
        (
            Column("chain_position", "place", "id"),
            Column("rank", "rank", "id"),
            Column("node", "node", "code"),
            Column("rule", "rule", "code"),
            Column("lane", "runs as"),
            Column("start_ns", "starts at", "ns"),
            Column("length_ns", "adds", "ns"),
        ),
        notes=_largest(CHAIN_LIMIT, len(rows), "first"),
        is_open=False,
    )


def chain_figure(facts: Facts) -> Gantt | None:
    """The binding chain as boxes on three lanes; what follows on the engine is one box."""
    query = model_queries.stretches(facts.at.step_id)
    rows = facts.rows(query)
    if not rows:
        return None
    marks = tuple(
        Mark(
            row=_LANES[row["lane"]][1],
            start_ns=row["start_ns"],
            end_ns=row["end_ns"],
            time_class=_KIND_CLASS.get(row["kind"], "packing"),
            name=_stretch(row),
            count=1,
            busy_ns=row["length_ns"],
            node=f"tied by {row['rule']}" if row["rule"] else "first of the step",
            label=_short(row),
        )
        for row in rows
        if row["end_ns"] > row["start_ns"]
    )
    whole = rows[-1]["end_ns"]
    by_lane = dict.fromkeys(_LANES, 0)
    for mark in marks:
        by_lane[tuple(_LANES)[mark.row]] += mark.busy_ns
    lengths = values([by_lane[lane] for lane in _LANES], "ns")
    said = ", ".join(
        f"{_LANES[lane][0]} {length}" for lane, length in zip(_LANES, lengths, strict=True)
    )
    return Gantt(
        id="binding-chain",
        title=f"What pins T_lb: the binding chain of step {facts.at.step_id}",
        caption=f"{value(whole, 'ns')} without a hole: {said}. To shorten the bound, shorten what "
        "is drawn here.",
        rank=facts.at.rank,
        step_id=facts.at.step_id,
        window_ns=whole,
        rows=tuple(label for label, _ in _LANES.values()),
        marks=marks,
        query=query,
        claim="t-lb",
        notes=("Nodes that follow each other on the compute engine in one pass share a box.",),
    )


def _unit(node: str) -> str:
    return node.partition("(")[2].partition(")")[0]


def _stretch(row: Row) -> str:
    if row["node_count"] == 1:
        return str(row["first_node"])
    return f"{row['first_node']} to {row['last_node']}, {row['node_count']} nodes"


def _short(row: Row) -> str:
    first, last = _unit(row["first_node"]), _unit(row["last_node"])
    return f"{row['kind']} {first}" + (f" .. {last}" if first != last else "")


def _ladder(facts: Facts) -> Table:
    known = facts.model
    query = model_queries.LADDER
    values_of = shares.mean(facts.rows(shares.LADDERS))
    noise = changes.NOISE * known.rungs[""]["step_ns"]
    rows: list[dict[str, Any]] = []
    for removed, row in known.rungs.items():
        what = _RUNGS.get(removed, removed.replace("+", " and "))
        has_value = removed in MECHANISMS
        slow = row["stretched_ns"] is not None
        rows.append(
            {
                "removed": f"{removed}: {what}" if removed in MECHANISMS else what,
                "step": model.ranged(row, "step"),
                "saved_ns": _saved(row, noise) if removed else None,
                "stretched": model.ranged(row, "stretched") if slow else None,
                "shapley_ns": round(values_of[removed][0]) if has_value else None,
                "least_ns": values_of[removed][1] if has_value else None,
                "most_ns": values_of[removed][2] if has_value else None,
            }
        )
    played = [row for row in known.checks if row["check_name"] == "replay_error"]
    error = f"{played[0]['detail']} at worst. " if played else ""
    factor = ""
    if known.factor is not None:
        factor = f" Stretched: compute that comes to overlap slows down x{known.factor:.2f}."
    return table(
        "ladder",
        "What if: the step without a mechanism",
        f"{error[:1].upper()}{error[1:]}Mean over the steps that count (n, smallest to largest); a "
        f"step is as long as on its slowest rank.{factor} Its share, "
        "least and most: what removing one saves, averaged over all orders in which the three can "
        "be removed, and the extremes.",
        "ladder",
        query,
        rows,
        (
            Column("removed", "without"),
            Column("step", "step", "ns"),
            Column("saved_ns", "saved", "ns"),
            Column("stretched", "step, stretched", "ns"),
            Column("shapley_ns", "its share", "ns", "Shapley value over the three mechanisms"),
            Column("least_ns", "least", "ns"),
            Column("most_ns", "most", "ns"),
        ),
        notes=(changes.LADDER_KEEPS, f"-: saves less than {value(changes.NOISE, 'share')}."),
    )


def _saved(row: Row, noise: float) -> int | str:
    """What a rung or a change saves, or a dash where that is noise of the replay."""
    saved: int = row["saved_ns"]
    return saved if abs(saved) >= noise else "-"


def _changes(facts: Facts) -> Table:
    noise = changes.NOISE * facts.model.rungs[""]["step_ns"]
    rows = [
        {
            "change": row["change"],
            "step": model.ranged(row, "step"),
            "saved_ns": _saved(row, noise),
        }
        for row in facts.model.changes
    ]
    return table(
        "changes",
        "What if: the step after a single change",
        "Modelled, with everything else as executed: durations, launches, queues. Mean over the "
        "steps of the slowest rank. Each on its own; savings do not add, and compute that comes to "
        "overlap may slow down.",
        "ladder",
        model_queries.CHANGES,
        rows,
        (
            Column("change", "change", "code"),
            Column("step", "step", "ns"),
            Column("saved_ns", "saved", "ns"),
        ),
        notes=tuple(changes.meanings(row["change"] for row in facts.model.changes)),
    )


def _queues(facts: Facts) -> Table:
    set_to = facts.rows(model_queries.CONNECTIONS)
    known = ", ".join(f"{row['value']} on rank {row['rank']}" for row in set_to[:4])
    known = known or "not in this capture"
    return table(
        "queues",
        "Streams that share a hardware queue",
        "Found from ops that started late, and just when the op before them on another stream of "
        "the queue did; kept only where a replay with the rule reproduces the step. "
        f"`CUDA_DEVICE_MAX_CONNECTIONS`, the number of queues: {known}.",
        "hardware-queues",
        model_queries.QUEUES,
        facts.rows(model_queries.QUEUES),
        (
            Column("streams", "streams", "code"),
            Column("until", "frees the queue"),
            Column("instance_count", "late starts explained", "count"),
            Column("counter_examples", "counter-examples", "count"),
            Column("first_step_id", "from step", "id", "holds for steps of one program"),
        ),
    )


def _floors(facts: Facts) -> Table:
    return table(
        "floors",
        "Launch floors",
        "What a start costs after everything it waits for, 95th percentile of this capture and 30 "
        "us at most; `replay` is the median on one stream, the only lag that a replay uses.",
        "gap-classes",
        model_queries.FLOORS,
        facts.rows(model_queries.FLOORS),
        (
            Column("kind", "after", "code"),
            Column("floor_ns", "floor", "ns"),
            Column("first_step_id", "from step", "id", "holds for steps of one program"),
        ),
        is_open=False,
    )
