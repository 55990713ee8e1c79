"""Section 5: one card a mechanism, ranked by ceiling. Advice follows from what held the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.report import gap_cards, queries
from gapscope.report.document import Opportunity, Quantity, Section, Statement
from gapscope.report.facts import THRESHOLD, code
from gapscope.report.setting import Setting, Shape, setting
from gapscope.report.verdict import blocking_bound, communication, is_copy_bound, largest_copy
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row


@dataclass(frozen=True, slots=True)
class _Tip:
    """`needs`: words of `Setting.tags` and shapes of the time, without which it is not said."""

    text: str
    needs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Advice:
    title: str
    mechanism: str
    what_to_try: tuple[_Tip, ...]
    not_when: str


def _tip(text: str, *needs: str) -> _Tip:
    return _Tip(text, frozenset(needs))


_EVENTS = _tip(
    "Capture again with event records (`nsys profile --cuda-event-trace=true`), so that waits lead "
    "to their producers.",
    "nsys",
    "cuda",
)
_CONNECTIONS = _tip(
    "Raise `CUDA_DEVICE_MAX_CONNECTIONS` (32 at most) if many streams are in use, and compare.",
    "cuda",
)
_PREFETCH = _tip(
    "Start collectives earlier: for FSDP2, `set_modules_to_forward_prefetch` and "
    "`set_modules_to_backward_prefetch`.",
    "fsdp",
    "comm",
)
_SEND_LESS = _tip(
    "Send less: `reshard_after_forward=False` where memory allows, HSDP inside a node, larger "
    "micro-batches between gradient reductions.",
    "fsdp",
    "comm",
)

# Host-side delay first where pieces are long, launch cost first where they are short.
_LAUNCH_HOST = (
    _tip(
        "Look for what delays the launching thread: data loading, Python work, garbage collection "
        "or a synchronization. The evidence says whether it was inside a call."
    ),
    _tip("Keep that thread free: no `.item()`, `.cpu()`, logging or data loading on it."),
)
_LAUNCH_COST = (
    _tip(
        'Replay the step as a CUDA graph, or `torch.compile` with `mode="reduce-overhead"`.',
        "cuda",
    ),
    _tip("Replay the step as a HIP graph, or use `torch.compile`.", "hip"),
    _tip("Launch fewer, larger kernels: fused or foreach optimizers, fused norms."),
)

_LAUNCH = _Advice(
    "late launches",
    "The device had no compute op to run because the launching thread had not issued it yet.",
    (*_LAUNCH_COST, *_LAUNCH_HOST),
    "The host waits on purpose at the start of a step (data, a barrier, a time-out of another "
    "rank), or the profiler's own cost delays launches: compare with the unprofiled step time.",
)

_COMMUNICATION = _Advice(
    "compute waits for communication",
    "Issued compute waited while communication kernels were still running.",
    (
        _PREFETCH,
        _SEND_LESS,
        _tip("Start collectives earlier, or send fewer bytes.", "no-fsdp"),
        _tip(
            "Check that the collective is fast when alone; a long one may be waiting for a late "
            "rank."
        ),
    ),
    "Another rank arrives late (section 4 says who came last), or no compute is left that could "
    "overlap.",
)

_QUEUE = _Advice(
    "compute waits for ops that stalled",
    "Issued compute waited for an op that was itself issued and idle for no recorded reason: a "
    "wait whose event is not in the capture, or a hardware queue that several streams share.",
    (
        _EVENTS,
        _CONNECTIONS,
        _tip("Look at the timeline of the HTML report: which stream does the op sit behind?"),
    ),
    "The waits are unresolved (section 2): then this is ordinary waiting for other device work.",
)

_UNRESOLVED = _Advice(
    "compute waits, reason not recorded",
    "Issued compute waited for an op that was itself issued and idle, and stream waits of this "
    "capture do not lead to their producers.",
    (
        _EVENTS,
        _tip(
            "If exposed communication is of this size it is the likely reason: start it earlier or "
            "send less.",
            "comm",
        ),
        _CONNECTIONS,
        _tip("Look at the timeline of the HTML report: what ran just before the op started?"),
    ),
    "The op that stalls waits for the host.",
)

_COPY = _Advice(
    "compute waits for copies",
    "Issued compute waited for memory copies that were still running.",
    (
        _tip(
            "Overlap them: copy the next batch on a stream of its own from pinned memory with "
            "`non_blocking=True`, one or two batches ahead.",
            "pageable",
        ),
        _tip(
            "Overlap them: copy the next batch on a stream of its own with `non_blocking=True`, "
            "one or two batches ahead.",
            "not-pageable",
        ),
        _tip(
            "Copy less: keep on the device what is used again, send smaller types, convert there."
        ),
        _tip(
            "Pageable host memory copies slowly and blocks the host: `pin_memory=True`.", "pageable"
        ),
    ),
    "The copies already run at the speed of the link and nothing is left to overlap them with.",
)

_DEVICE_COPY = _Advice(
    "compute waits for device copies",
    "Issued compute waited for device-to-device copies that were still running.",
    (
        _tip(
            "Find what copies: `.contiguous()`, `.clone()`, `torch.cat` and in-place updates of "
            "views."
        ),
        _tip(
            "`torch.compile` fuses many of them away; writing into preallocated outputs does too."
        ),
    ),
    "The copies are buffers of a communication library, or single ones of a few us.",
)

_PACKING = _Advice(
    "compute waits for packing",
    "Issued compute waited for kernels that copy parameters into or out of communication buffers.",
    (
        _tip("Fewer, larger units: each unit pays for its own copies in and out."),
        _tip("Overlap: prefetch so that the copy-in runs while other compute does.", "fsdp"),
    ),
    "Packing is short and only the last link of a chain: the evidence says who held the time.",
)

_OTHER = _Advice(
    "compute waits for other device work",
    "Issued compute waited for device work that does not compute.",
    (_tip("Move the op that held the time off the stream that computes."),),
    "The op is needed exactly there.",
)

_STALLED = _Advice(
    "issued compute stalls",
    "Compute was issued and did not start, and nothing recorded held it: latency between ops, a "
    "wait that is not resolved, or a hardware queue shared by streams.",
    (
        _tip(
            "Many short pieces: fewer, larger kernels or a graph, each start costs some us.",
            "short",
        ),
        _tip(_EVENTS.text, "nsys", "cuda", "long"),
        _tip(_CONNECTIONS.text, "cuda", "long"),
        _tip(
            "Look at the longest piece in the timeline of the HTML report: what ran beside it?",
            "long",
        ),
        _tip("Nothing, while the pieces are this short.", "grain"),
    ),
    "Stream waits are unresolved (section 2): part of this is blocking that cannot be seen.",
)

_TAIL = _Advice(
    "no compute at the end",
    "After the last compute op of the window the device ran only other work, or nothing.",
    (
        _tip("Move closing communication beside compute of the next step.", "comm"),
        _tip("Move closing copies or a checkpoint beside compute of the next step."),
    ),
    "The window is cut at the end of the capture.",
)

# From this share of the blocking time on, communication beside it is the likelier reason.
_BESIDE = 0.5

_BY_CLASS = {
    "launch_starved": _LAUNCH,
    "stalled": _STALLED,
    "tail": _TAIL,
}

_BY_BLAME = {
    "communication": _COMMUNICATION,
    "copy": _COPY,
    "packing": _PACKING,
}


@dataclass(frozen=True, slots=True)
class _Held:
    """Who held the blocking time: by reason, by op, and the communication beside it."""

    blame: list[Row]
    names: list[Row]
    beside: list[Row]


def build(facts: Facts, copies: list[Row]) -> tuple[Opportunity, ...]:
    """Cards for every mechanism, or class of compute-absent time, of 1 % of the median step."""
    if facts.window is None:
        return ()
    if facts.model.has_classes:
        return gap_cards.build(facts)
    query = queries.ceilings(facts.at)
    found = [row for row in facts.rows(query) if row["step_share"] >= THRESHOLD]
    if not found:
        return ()
    held = _Held(
        facts.rows(queries.blame(facts.at)),
        facts.rows(queries.blame_names(facts.at)),
        facts.rows(queries.beside_blocking(facts.at)) if facts.top["comm_ns"] else [],
    )
    pieces = {row["absent_class"]: row for row in facts.rows(queries.pieces(facts.at))}
    where = setting(facts, copies)
    return tuple(_card(facts, where, row, query, held, pieces, copies) for row in found)


def section(facts: Facts, opportunities: tuple[Opportunity, ...]) -> Section:
    """Words before the cards."""
    if facts.model.has_classes:
        said = tuple(gap_cards.statements(facts, opportunities))
        return Section("opportunities", "Ranked opportunities", said)
    statements = []
    if opportunities:
        statements.append(
            Statement(
                "Ranked by time. No ceiling in percent is given: "
                + (
                    "this is the whole capture and not a step."
                    if facts.projection == "capture"
                    else "compute is less than 10 % of the step, so it would only say that."
                ),
                "split",
            )
            if opportunities[0].ceiling is None
            else Statement(
                "Ranked by ceiling: the most that the step could speed up if all time of that kind "
                "vanished and nothing else grew. The kinds are disjoint, yet ceilings do not add, "
                "and none of them is a forecast.",
                "ceiling",
            )
        )
    elif facts.focus is not None:
        statements.append(
            Statement(
                "No finding: no class of compute-absent time reaches "
                f"{value(THRESHOLD, 'share')} of the {facts.noun}.",
                "split",
            )
        )
    else:
        statements.append(Statement("No finding: nothing is budgeted.", "capture"))
    missing: tuple[Statement, ...] = ()
    if opportunities:
        missing = (
            Statement(
                "Which part of this is recoverable, and what a change would really bring, is not "
                "said: that needs a dependency model that fits the workload and reproduces the "
                "run.",
                "no-bound",
            ),
        )
    return Section("opportunities", "Ranked opportunities", tuple(statements), missing=missing)


def _card(
    facts: Facts,
    where: Setting,
    row: Row,
    query: str,
    held: _Held,
    pieces: dict[str, Row],
    copies: list[Row],
) -> Opportunity:
    absent_class = row["absent_class"]
    n = row["step_count"]
    shape = Shape.of(pieces.get(absent_class))
    advice = _BY_CLASS.get(absent_class) or _blocking_advice(
        held, row["absent_ns"], blocking_bound(facts)[0]
    )
    tips = advice.what_to_try
    if advice is _LAUNCH and shape.tag == "long":
        tips = (*_LAUNCH_HOST, *_LAUNCH_COST)
    evidence, see = _evidence(facts, where, absent_class, held, shape, copies)
    tags = where.tags | {shape.tag}
    tried = tuple(tip.text for tip in tips if tip.needs <= tags)
    if advice is _COPY and where.pinned_rate:
        tried = (*tried, where.pinned_rate)
    ceiling = None
    if facts.has_ceiling:
        ceiling = Quantity(row["ceiling"], "share", n, row["ceiling_min"], row["ceiling_max"])
    return Opportunity(
        id=f"finding-{absent_class.replace('_', '-')}",
        title=f"{absent_class.replace('_', '-')}: {advice.title}",
        mechanism=Statement(advice.mechanism, "split"),
        time=Quantity(row["absent_ns"], "ns", n, row["absent_min_ns"], row["absent_max_ns"]),
        step_share=row["step_share"],
        ceiling=ceiling,
        evidence=tuple(evidence),
        see=tuple(see),
        what_to_try=tried,
        not_when=advice.not_when,
        query=query,
        claim="advice",
    )


def _held_by(names: list[Row]) -> str:
    """Which copies held most blocking time by running, if copies did."""
    running = [row for row in names if row["reason"] == "running"]
    if not running or running[0]["time_class"] != "copy":
        return ""
    return "device copies" if "DtoD" in (running[0]["name"] or "") else "host copies"


def _is_beside(held: _Held, blocking_ns: int) -> bool:
    """Whether communication ran during so much of the blocking time that it likely holds it."""
    overlap_ns: int = sum(row["overlap_ns"] for row in held.beside)
    return overlap_ns >= _BESIDE * blocking_ns


def _blocking_advice(held: _Held, blocking_ns: int, bound: str) -> _Advice:
    """Advice by what held most of the blocking time."""
    if not held.blame:
        return _OTHER
    top = held.blame[0]
    if top["reason"] == "launch_starved":
        return _LAUNCH
    if _is_beside(held, blocking_ns):
        return _COMMUNICATION
    if top["reason"] == "stalled":
        return _UNRESOLVED if bound == "lower" else _QUEUE
    if top["time_class"] == "copy" and _held_by(held.names) == "device copies":
        return _DEVICE_COPY
    return _BY_BLAME.get(top["time_class"], _OTHER)


def _evidence(
    facts: Facts,
    where: Setting,
    absent_class: str,
    held: _Held,
    shape: Shape,
    copies: list[Row],
) -> tuple[list[Statement], list[str]]:
    said = [Statement(text, "split") for text in shape.said(absent_class)]
    see = [f"gantt-rank-{facts.at.rank}", "pieces"]
    if absent_class == "launch_starved":
        see.append("starved-host")
        said += _host(facts, where)
    if absent_class == "blocking":
        see.append("blame")
        said += _blame(held)
        if held.beside:
            top = held.beside[0]
            said.append(
                Statement(
                    "Longest communication while compute was blocked: "
                    f"{code(top['name'], 60)}, {value(top['overlap_ns'], 'ns')} in "
                    f"{plural(top['op_count'], 'op')}.",
                    "budget",
                )
            )
        said += communication(facts.top)
        if is_copy_bound(facts) or _held_by(held.names) == "host copies":
            see.append("copies")
            largest = largest_copy(facts, copies)
            if largest:
                said.append(Statement(f"Largest copies by time: {largest}.", "transfers"))
    if absent_class in ("blocking", "stalled"):
        bound, why = blocking_bound(facts)
        if bound == "lower" or absent_class == "blocking":
            said.append(Statement(why, "bound-of-blocking"))
    return said, see


def _host(facts: Facts, where: Setting) -> list[Statement]:
    """What the launching threads did in exactly the time that is launch-starved."""
    rows = facts.rows(queries.starved_host(facts.at))
    if not rows:
        return []
    whole = value(rows[0]["starved_ns"], "ns")
    outside = sum(row["overlap_ns"] for row in rows if row["place"] == "outside calls")
    unknown = sum(row["overlap_ns"] for row in rows if row["place"] == "launch unknown")
    calls = [row for row in rows if row["place"] == "in a call"]
    said = [
        Statement(
            f"The host was outside {where.api} for {value(outside, 'ns')} of {whole}: the thread "
            "that issues the late op was in no call then.",
            "host",
        )
    ]
    if calls:
        top = ", ".join(f"{code(r['name'])} {value(r['overlap_ns'], 'ns')}" for r in calls[:3])
        said.append(Statement(f"Inside {where.api} calls it spent most in {top}.", "host"))
    if unknown:
        said.append(
            Statement(
                f"For {value(unknown, 'ns')} the launch of the late op is not in the capture.",
                "host",
            )
        )
    late = [
        f"thread {row['launch_tid']}: {row['late_count']:,} of {plural(row['op_count'], 'op')}"
        for row in facts.rows(queries.pacing(facts.at))
        if facts.projection == "device" and row["late_count"]
    ]
    if late:
        said.append(
            Statement(f"Started less than 20 us after their launch: {'; '.join(late[:2])}.", "host")
        )
    return said


def _blame(held: _Held) -> list[Statement]:
    words = {
        "running": "running",
        "launch_starved": "launched late",
        "stalled": "stalled",
    }
    by_class = [
        f"{row['time_class']} {words.get(row['reason'], row['reason'])} "
        f"{value(row['blamed_ns'], 'ns')}"
        for row in held.blame[:3]
    ]
    if not by_class:
        return []
    said = [Statement(f"Followed back, who held it: {', '.join(by_class)}.", "blame")]
    top = [
        f"{code(row['name'], 60)} {words.get(row['reason'], row['reason'])} "
        f"{value(row['blamed_ns'], 'ns')}"
        for row in held.names[:2]
    ]
    said.append(Statement(f"By op: {', '.join(top)}.", "blame"))
    return said
