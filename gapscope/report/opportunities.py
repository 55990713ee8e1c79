"""Section 5: one card a mechanism, ranked by ceiling. Advice follows from what held the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.report import queries
from gapscope.report.document import Opportunity, Quantity, Section, Statement
from gapscope.report.facts import THRESHOLD, code
from gapscope.report.verdict import blocking_bound, communication, is_copy_bound, largest_copy
from gapscope.units import plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row


@dataclass(frozen=True, slots=True)
class _Advice:
    title: str
    mechanism: str
    what_to_try: tuple[str, ...]
    not_when: str


_LAUNCH = _Advice(
    "late launches",
    "The device had no compute op to run because the launching thread had not issued it yet.",
    (
        'Replay the step as a CUDA graph, or `torch.compile` with `mode="reduce-overhead"`.',
        "Launch fewer, larger kernels: fused or foreach optimizers, fused norms, `torch.compile`.",
        (
            "Keep the launching thread free: no `.item()`, `.cpu()`, logging or data "
            "loading on it; section 3 shows its calls."
        ),
    ),
    "The host waits on purpose at the start of a step (data, a barrier, a time-out of another "
    "rank), or the profiler's own cost delays launches: compare with the unprofiled step time.",
)

_COMMUNICATION = _Advice(
    "compute waits for communication",
    "Issued compute waited for communication kernels that were still running.",
    (
        (
            "Start collectives earlier: for FSDP2, `set_modules_to_forward_prefetch` and "
            "`set_modules_to_backward_prefetch`."
        ),
        (
            "Send less: `reshard_after_forward=False` where memory allows, HSDP inside a "
            "node, larger micro-batches between gradient reductions."
        ),
        "Check that the collective is fast when alone; a long one may be waiting for a late rank.",
    ),
    "Another rank arrives late (this version cannot tell), or no compute is left that could "
    "overlap.",
)

_QUEUE = _Advice(
    "compute waits for ops that stalled",
    "Issued compute waited for an op that was itself issued and idle for no recorded reason: a "
    "wait whose event is not in the capture, or a hardware queue that several streams share.",
    (
        (
            "Capture again with event records (`nsys profile --cuda-event-trace=true`), so "
            "that waits lead to their producers."
        ),
        "Raise `CUDA_DEVICE_MAX_CONNECTIONS` (32 at most) if many streams are in use, and compare.",
        "Look at the timeline: which stream does the stalled op sit behind?",
    ),
    "The waits are unresolved (section 2): then this is ordinary waiting for communication.",
)

_UNRESOLVED = _Advice(
    "compute waits, and the capture does not record for what",
    "Issued compute waited for an op that was itself issued and idle, and stream waits of this "
    "capture do not lead to their producers. Where exposed communication is of this size, that is "
    "the likely reason.",
    (
        "Capture again with event records (`nsys profile --cuda-event-trace=true`).",
        (
            "If it is communication: prefetch earlier (`set_modules_to_forward_prefetch`), send "
            "less (`reshard_after_forward=False`, HSDP)."
        ),
        "If communication is short: raise `CUDA_DEVICE_MAX_CONNECTIONS` (32 at most).",
    ),
    "The op that stalls waits for the host: see launch pacing in section 3.",
)

_COPY = _Advice(
    "compute waits for copies",
    "Issued compute waited for memory copies that were still running.",
    (
        (
            "Overlap them: copy the next batch on a stream of its own from pinned memory with "
            "`non_blocking=True`, one or two batches ahead."
        ),
        "Copy less: keep on the device what is used again, send smaller types, convert there.",
        "Pageable host memory copies slowly and blocks the host: `pin_memory=True`.",
    ),
    "The copies already run at the speed of the link and nothing is left to overlap them with.",
)

_DEVICE_COPY = _Advice(
    "compute waits for copies inside the device",
    "Issued compute waited for device-to-device copies that were still running.",
    (
        "Find what copies: `.contiguous()`, `.clone()`, `torch.cat` and in-place updates of views.",
        "`torch.compile` fuses many of them away; writing into preallocated outputs does too.",
    ),
    "The copies are buffers of a communication library, or single ones of a few us.",
)

_PACKING = _Advice(
    "compute waits for packing",
    "Issued compute waited for kernels that copy parameters into or out of communication buffers.",
    (
        "Fewer, larger units: each unit pays for its own copies in and out.",
        "Overlap: prefetch so that the copy-in runs while other compute does.",
    ),
    "Packing is short and only the last link of a chain; see who held the time in section 3.",
)

_OTHER = _Advice(
    "compute waits for other device work",
    "Issued compute waited for device work that does not compute.",
    ("See in section 3 which op held the time, and move it off the stream that computes.",),
    "The op is needed exactly there.",
)

_STALLED = _Advice(
    "issued compute stalls",
    "Compute was issued and did not start, and nothing recorded held it: latency between ops, a "
    "wait that is not resolved, a hardware queue shared by streams, or other kernels on the SMs.",
    (
        (
            "Many short pieces: fewer, larger kernels or a CUDA graph, because each start costs "
            "some us."
        ),
        (
            "Few long pieces: capture event records (`nsys profile --cuda-event-trace=true`) "
            "and raise `CUDA_DEVICE_MAX_CONNECTIONS`."
        ),
    ),
    "Stream waits are unresolved (section 2): part of this is blocking that cannot be seen.",
)

_TAIL = _Advice(
    "no compute at the end",
    "After the last compute op of the window the device ran only other work, or nothing.",
    ("Move the closing communication, copies or checkpoint beside compute of the next step.",),
    "The window is cut at the end of the capture.",
)

# From this share of a class on, one piece is the finding.
_ONE_PIECE = 0.8

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


def build(facts: Facts, copies: list[Row]) -> tuple[Opportunity, ...]:
    """Cards for every class of compute-absent time of at least 1 % of the median step."""
    if facts.window is None:
        return ()
    query = queries.ceilings(facts.at)
    found = [row for row in facts.rows(query) if row["step_share"] >= THRESHOLD]
    blame = facts.rows(queries.blame(facts.at))
    names = facts.rows(queries.blame_names(facts.at))
    pieces = {row["absent_class"]: row for row in facts.rows(queries.pieces(facts.at))}
    return tuple(_card(facts, row, query, blame, names, pieces, copies) for row in found)


def section(facts: Facts, opportunities: tuple[Opportunity, ...]) -> Section:
    """Words before the cards."""
    statements = []
    if opportunities:
        statements.append(
            Statement(
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
                "Which part of this is recoverable, and what a change would really bring, needs "
                "the dependency model; this version has none.",
                "no-bound",
            ),
        )
    return Section("opportunities", "Ranked opportunities", tuple(statements), missing=missing)


def _card(
    facts: Facts,
    row: Row,
    query: str,
    blame: list[Row],
    names: list[Row],
    pieces: dict[str, Row],
    copies: list[Row],
) -> Opportunity:
    absent_class = row["absent_class"]
    n = row["step_count"]
    advice = _BY_CLASS.get(absent_class) or _blocking_advice(blame, names, blocking_bound(facts)[0])
    evidence, see = _evidence(facts, absent_class, blame, names, pieces, copies)
    return Opportunity(
        id=f"finding-{absent_class.replace('_', '-')}",
        title=f"{absent_class.replace('_', '-')}: {advice.title}",
        mechanism=Statement(advice.mechanism, "split"),
        time=Quantity(row["absent_ns"], "ns", n, row["absent_min_ns"], row["absent_max_ns"]),
        step_share=row["step_share"],
        ceiling=Quantity(row["ceiling"], "share", n, row["ceiling_min"], row["ceiling_max"]),
        evidence=tuple(evidence),
        see=tuple(see),
        what_to_try=advice.what_to_try,
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


def _blocking_advice(blame: list[Row], names: list[Row], bound: str) -> _Advice:
    """Advice by what held most of the blocking time."""
    if not blame:
        return _OTHER
    top = blame[0]
    if top["reason"] == "launch_starved":
        return _LAUNCH
    if top["reason"] == "stalled":
        return _UNRESOLVED if bound == "lower" else _QUEUE
    if top["time_class"] == "copy" and _held_by(names) == "device copies":
        return _DEVICE_COPY
    return _BY_BLAME.get(top["time_class"], _OTHER)


def _evidence(
    facts: Facts,
    absent_class: str,
    blame: list[Row],
    names: list[Row],
    pieces: dict[str, Row],
    copies: list[Row],
) -> tuple[list[Statement], list[str]]:
    said: list[Statement] = []
    see = [f"gantt-rank-{facts.at.rank}", "pieces"]
    piece = pieces.get(absent_class)
    if piece is not None:
        said.append(
            Statement(
                f"{plural(piece['piece_count'], 'piece')}, median "
                f"{value(piece['median_ns'], 'ns')}, largest {value(piece['max_ns'], 'ns')}; "
                f"{piece['short_count']:,} are below 30 us "
                f"and hold {value(piece['short_ns'], 'ns')}.",
                "split",
            )
        )
        if piece["piece_count"] > 1 and piece["max_share"] >= _ONE_PIECE:
            said.append(
                Statement(
                    f"One piece is {value(piece['max_share'], 'share')} of it: look at that one "
                    "first, it may be an accident of the capture.",
                    "split",
                )
            )
    if absent_class == "launch_starved":
        see.append("pacing")
        see.append("api-calls")
        said += _pacing(facts)
    if absent_class == "blocking":
        see.append("blame")
        said += _blame(blame, names)
        said += communication(facts.top)
        if is_copy_bound(facts) or _held_by(names) == "host copies":
            see.append("copies")
            top = largest_copy(facts, copies)
            if top:
                said.append(Statement(f"Largest copies by time: {top}.", "transfers"))
    if absent_class in ("blocking", "stalled"):
        bound, why = blocking_bound(facts)
        if bound == "lower" or absent_class == "blocking":
            said.append(Statement(why, "bound-of-blocking"))
    return said, see


def _pacing(facts: Facts) -> list[Statement]:
    said = [
        Statement(
            f"Thread {row['launch_tid']} made {plural(row['launch_count'], 'launch', 'launches')} "
            f"({value(row['launches_per_ms'], '1/ms')}); {row['late_count']:,} of "
            f"{plural(row['op_count'], 'op')} started less than 20 us after their launch.",
            "host",
        )
        for row in facts.rows(queries.pacing(facts.at))
        if facts.projection == "device"
    ]
    calls = facts.rows(queries.api_calls(facts.at.rank))
    if calls:
        top = calls[0]
        said.append(
            Statement(
                f"Over the whole capture the largest API time is {code(top['name'])}: "
                f"{plural(top['call_count'], 'call')}, {value(top['volume_ns'], 'ns')}.",
                "host",
            )
        )
    return said[:4]


def _blame(blame: list[Row], names: list[Row]) -> list[Statement]:
    words = {
        "running": "running",
        "launch_starved": "launched late",
        "stalled": "stalled",
    }
    held = [
        f"{row['time_class']} {words.get(row['reason'], row['reason'])} "
        f"{value(row['blamed_ns'], 'ns')}"
        for row in blame[:3]
    ]
    if not held:
        return []
    said = [Statement(f"Followed back, who held it: {', '.join(held)}.", "blame")]
    top = [f"{code(row['name'], 60)} ({value(row['blamed_ns'], 'ns')})" for row in names[:2]]
    said.append(Statement(f"By op: {', '.join(top)}.", "blame"))
    return said
