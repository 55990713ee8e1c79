"""Section 5 with a bound: one card a mechanism of the gap, then the hard idle of the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapscope.report import model, model_queries
from gapscope.report.document import Opportunity, Quantity, Statement
from gapscope.report.facts import THRESHOLD, code
from gapscope.report.gap_verdict import (
    IDLE_ANYWAY,
    REASONS,
    hard_parts,
    plain_and_stretched,
)
from gapscope.units import listed, plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row


@dataclass(frozen=True, slots=True)
class _Advice:
    """`by_cause`: what to try first where that is the largest cause. `changes`: replayed ones."""

    mechanism: str
    what_to_try: tuple[str, ...]
    not_when: str
    changes: tuple[str, ...] = ()
    by_cause: tuple[tuple[str, str], ...] = ()


_R1 = _Advice(
    "What the op needed was done, but the launching thread had not issued it.",
    (
        "Launch less: a CUDA graph, `torch.compile`, foreach or fused optimizers.",
        (
            "Keep the launching thread on a core of its own (`numactl`, `taskset`), away from data "
            "loading workers and from NCCL's proxy threads."
        ),
    ),
    "The host waits there on purpose (data, a barrier), or the profiler's own cost delays "
    "launches: compare with the step time without it.",
    ("no pauses between launches", "all-gather issued at rule-ready time"),
    (
        (
            "no CUDA call",
            (
                "The thread was in no CUDA call: look for Python work, data loading, logging, or "
                "garbage collection (`gc.disable()`, and `gc.collect()` between steps)."
            ),
        ),
        (
            "sync call",
            (
                "The thread waited in a synchronizing call: no `.item()`, `.cpu()` or "
                "`synchronize()` between launches."
            ),
        ),
        (
            "allocation",
            (
                "The thread was in the allocator: "
                "`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, no `empty_cache()`, the "
                "largest shapes first."
            ),
        ),
        (
            "module load",
            "Kernels were loaded on first use: more warm-up, or `CUDA_MODULE_LOADING=EAGER`.",
        ),
        ("other API", "The thread was in other CUDA calls: section 3 lists what they cost."),
    ),
)

_HW_QUEUE = _Advice(
    "Issued and ready, but its stream shares a hardware queue with another one, and the queue "
    "dispatches in the order in which the host issued.",
    (
        "Start every rank with `CUDA_DEVICE_MAX_CONNECTIONS=8` (32 at most).",
        (
            "Look for who sets it lower: launch scripts from Megatron set 1 by habit, and under "
            "MPS a client has two queues unless the variable says otherwise."
        ),
        "Use fewer streams.",
    ),
    "Something relies on launch order across streams, as Megatron's overlap of tensor-parallel "
    "communication does; or there are more queues than streams already.",
    ("more hardware queues",),
)

_STREAM = _Advice(
    "Issued and ready, but behind work on its own stream that no rule puts before it.",
    (
        (
            "Give gathers and reductions streams of their own. FSDP2 has them: look for code that "
            "merges streams or runs collectives on the compute stream."
        ),
        (
            "Issue what is needed first first: on one stream the order of launches is the order of "
            "work."
        ),
    ),
    "The order on the stream protects memory that is reused: then the rule is missing here.",
)

_COMMUNICATOR = _Advice(
    "Issued and ready, but behind another collective of its communicator.",
    (
        (
            "torch 2.13 and later: `set_separate_reduce_scatter_group` lets gathers and reductions "
            "pass each other."
        ),
        (
            "torch 2.13 and later: `set_reduce_scatter_max_input_buffers(2)` before the first "
            "forward, for the memory of one more gradient buffer."
        ),
    ),
    "The link is busy all the time: two communicators then share what one had.",
    ("separate reduce-scatter communicator", "+1 reduce-scatter buffer"),
)

_R3 = _Advice(
    "Collectives were resident and waited for the last rank to arrive.",
    (
        "Work on the rank that comes last, for its own reason; nothing on the waiting rank helps.",
        "Give ranks equal work: batches, sequence lengths, data loading.",
    ),
    "The last rank rotates (section 4): then it is jitter of hosts or links, not one rank.",
)

_H1 = _Advice(
    "Compute waits for collectives beside which no compute of the step could run.",
    (
        (
            "Split the root's parameters: wrap the embedding and the output head as units of their "
            "own, so that what nothing overlaps is small."
        ),
        (
            "Keep them gathered where memory allows (`reshard_after_forward=False`); for an "
            "embedding `set_unshard_in_backward(False)` drops a gather that backward does not "
            "need."
        ),
        "Make the transfer itself shorter: fewer bytes, a faster link.",
    ),
    "The awaited collective is as small as it can be.",
)

_H2 = _Advice(
    "Compute waits for collectives that other compute could hide, but too little of it is left.",
    (
        "A larger batch or longer sequences: compute grows, gathers do not.",
        "Gather less: `reshard_after_forward=False` where memory allows, HSDP inside a node.",
        "Prefetch deeper (`set_modules_to_forward_prefetch`), for one more buffer.",
        "A faster link, or smaller types for the parameters that are gathered.",
    ),
    "One more buffer does not shorten the bound (section 3): then prefetching does not help.",
    ("reshard_after_forward=False", "explicit prefetch depth 1", "explicit prefetch depth 2"),
)

# Words of a tip, and how the change that models it begins.
_MODELLED = (
    ("set_modules_to_forward_prefetch", "explicit prefetch depth"),
    ("reshard_after_forward=False", "reshard_after_forward=False"),
    ("set_separate_reduce_scatter_group", "separate reduce-scatter communicator"),
    ("set_reduce_scatter_max_input_buffers", "+1 reduce-scatter buffer"),
    ("CUDA_DEVICE_MAX_CONNECTIONS=8", "more hardware queues"),
)

_ADVICE = {
    ("R1", ""): _R1,
    ("R2", "hw_queue"): _HW_QUEUE,
    ("R2", "stream"): _STREAM,
    ("R2", "communicator"): _COMMUNICATOR,
    ("R3", ""): _R3,
    ("H1", ""): _H1,
    ("H2", ""): _H2,
}


def build(facts: Facts) -> tuple[Opportunity, ...]:
    """Cards for what holds at least 1 % of the run's step: recoverable first, then hard."""
    query = model.mechanisms_query(facts.model.run)
    return tuple(
        _card(facts, row, query) for row in facts.model.mechanisms if row["step_share"] >= THRESHOLD
    )


def statements(facts: Facts, cards: tuple[Opportunity, ...]) -> list[Statement]:
    """Words before the cards."""
    run = facts.model.run
    recoverable = sum(run[f"{name.lower()}_ns"] for name in model_queries.RECOVERABLE)
    said = []
    where = f"in step {facts.at.step_id} " if facts.model.is_uneven else ""
    if not any(card.title.startswith("R") for card in cards):
        said.append(
            Statement(
                f"No recoverable class reaches {value(THRESHOLD, 'share')} of the step.",
                "gap-classes",
            )
        )
    said.append(
        Statement(
            f"Classes are disjoint: {where}R1, R2 and R3 together are "
            f"{value(recoverable, 'ns')} of the {value(run['gap_ns'], 'ns')} above T_lb. R is what "
            "could be got back, H is hard while the program stays.",
            "gap-classes",
        )
    )
    said.append(
        Statement(
            "A ceiling is `T/(T-R) - 1`: the most that the step could speed up if that time "
            "vanished and nothing else grew. Ceilings do not add, and none is a forecast.",
            "ceiling",
        )
    )
    return said


def _causes(facts: Facts, name: str, sub: str) -> tuple[int, list[Row]]:
    """What the class is made of in the step shown, or, where that has none of it, in its worst."""

    def of(step: int) -> list[Row]:
        return [
            cause
            for cause in facts.rows(model_queries.causes(facts.at.rank, step))
            if cause["gap_class"] == name and (name != "R2" or (cause["sub_cause"] or "") == sub)
        ]

    shown = facts.at.step_id
    if own := of(shown):
        return shown, own
    part = sub if name == "R2" else None
    worst = facts.rows(model_queries.worst_step(facts.at.rank, name, part))[0]["step_id"]
    return worst, of(worst)


def _card(facts: Facts, row: Row, query: str) -> Opportunity:
    known = facts.model
    name, sub = row["gap_class"], row["sub_cause"] or ""
    advice = _ADVICE.get((name, sub)) or _ADVICE.get((name, "")) or _STREAM
    step, own = _causes(facts, name, sub)
    n = row["step_count"]
    # Waiting for a rank is over when that rank is on time.
    removed = own[0]["sub_cause"] if name == "R3" else name
    rung = known.rungs.get(removed, known.rungs.get(name))
    tips = [text for cause, text in advice.by_cause if cause == own[0]["sub_cause"]]
    if name == "R3":
        tips = _for_last(facts, own[0])
    see = ["gaps", "causes", f"gantt-rank-{facts.at.rank}"]
    see += ["ladder", "changes"] if known.rungs and name.startswith("R") else []
    see += {"hw_queue": ["queues"]}.get(sub, [])
    see += {"H1": ["binding-chain"], "H2": ["bounds"]}.get(name, [])
    return Opportunity(
        id="finding-" + "-".join(part for part in (name, sub) if part).lower().replace("_", "-"),
        title=model.mechanism(name, sub) + (" (hard)" if name.startswith("H") else ""),
        mechanism=Statement(advice.mechanism, "gap-classes"),
        time=Quantity(row["total_ns"], "ns", n, row["total_min_ns"], row["total_max_ns"]),
        step_share=row["step_share"],
        ceiling=Quantity(row["ceiling"], "share", n, row["ceiling_min"], row["ceiling_max"]),
        evidence=tuple(_evidence(facts, name, sub, step, own, advice)),
        see=tuple(see),
        what_to_try=tuple(_worth(facts.model, name, tip) for tip in (*tips, *advice.what_to_try)),
        not_when=advice.not_when,
        query=query,
        claim="advice",
        modelled=None if rung is None else model.ranged(rung, "step"),
    )


def _for_last(facts: Facts, cause: Row) -> list[str]:
    """What to try on the rank that comes last, for its own reason."""
    last, reason = cause["culprit_rank"], cause["sub_cause"]
    if last is None or reason not in ("R1", "R2"):
        return []
    rows = facts.rows(model_queries.causes(last, facts.at.step_id))
    why = next((row["sub_cause"] or "" for row in rows if row["gap_class"] == reason), "")
    advice = _ADVICE.get((reason, why)) or _ADVICE.get((reason, ""))
    if advice is None:
        return []
    tips = [text for known, text in advice.by_cause if known == why] or [advice.what_to_try[0]]
    return [f"On rank {last}: {tip[:1].lower()}{tip[1:]}" for tip in tips]


def _evidence(
    facts: Facts, name: str, sub: str, step: int, own: list[Row], advice: _Advice
) -> list[Statement]:
    said = []
    where = f"In step {step}: " if step != facts.at.step_id else ""
    if facts.model.is_uneven:
        said.append(
            Statement("Time, share and ceiling are means over the steps that count.", "gap-classes")
        )
        where = f"In step {step}: "
    said.append(Statement(where + _made_of(name, own), "gap-classes"))
    hidden = sum(cause["hidden_ns"] for cause in own)
    if hidden and name in ("R1", "R2"):
        said.append(
            Statement(
                f"{value(hidden, 'ns')} of it lie before the gap: a collective that started late "
                "shows as a transfer that compute waits for.",
                "gap-classes",
            )
        )
    if sub == "hw_queue":
        said += [
            Statement(
                f"Streams {code(row['streams'])} share a queue (inferred: "
                f"{row['instance_count']:,} of "
                f"{plural(row['instance_count'] + row['counter_examples'], 'late or early start')} "
                "fit).",
                "hardware-queues",
            )
            for row in facts.rows(model_queries.QUEUES)[:4]
        ]
    return [*said, *_modelled(facts.model, name, own, advice)]


def _made_of(name: str, own: list[Row]) -> str:
    pieces = plural(sum(cause["piece_count"] for cause in own), "piece")
    if name.startswith("H"):
        awaited = [cause for cause in own if cause["awaited_node"]]
        said = listed(
            [f"{code(c['awaited_node'])} {value(c['total_ns'], 'ns')}" for c in awaited], 4
        )
        idle = hard_parts(own, name).idle_anyway_ns
        rest = [f"{value(idle, 'ns')} {'more ' if said else ''}{IDLE_ANYWAY}"] if idle else []
        return "; ".join([pieces, *([f"waited for: {said}"] if said else []), *rest]) + "."
    if name == "R3":
        said = listed(
            [
                f"rank {c['culprit_rank']} ({REASONS.get(c['sub_cause'], c['sub_cause'])}) "
                f"{value(c['total_ns'], 'ns')}"
                for c in own
            ],
            4,
        )
        return f"{pieces}; last came, for its own reason: {said}."
    if name == "R1":
        by_cause: dict[str, int] = {}
        for cause in own:
            key = cause["sub_cause"] or "unknown"
            by_cause[key] = by_cause.get(key, 0) + cause["total_ns"]
        said = listed([f"{key} {value(total, 'ns')}" for key, total in by_cause.items()], 4)
        return f"{pieces}; the launching thread was in: {said}."
    return f"{pieces}."


def _can_tell(known: model.Model, name: str) -> bool:
    """Where more is recoverable than hard, what a change saves says nothing of the hard part."""
    recoverable = sum(known.run[f"{part.lower()}_ns"] for part in model_queries.RECOVERABLE)
    return not (name.startswith("H") and recoverable > known.run[f"{name.lower()}_ns"])


def _worth(known: model.Model, name: str, tip: str) -> str:
    """The tip, and that it saves nothing where it was modelled and does not."""
    if not known.rungs:
        return tip
    limit = THRESHOLD * known.rungs[""]["step_ns"]
    changes = [start for words, start in _MODELLED if words in tip]
    saved = [
        row["saved_ns"] for row in known.changes if changes and row["change"].startswith(changes[0])
    ]
    if not saved or max(saved) >= limit:
        return tip
    if not _can_tell(known, name) and known.top is not None:
        return f"{tip} (modelled: nothing while {known.top['gap_class']} is in the way)"
    return f"{tip} (modelled: nothing here)"


def _modelled(known: model.Model, name: str, own: list[Row], advice: _Advice) -> list[Statement]:
    """What a replay says, of the mechanism and of changes that address it."""
    if not known.rungs:
        return []
    if not _can_tell(known, name):
        return []
    base = value(known.rungs[""]["step_ns"], "ns")
    said = []
    own_reasons = [cause["sub_cause"] for cause in own] if name == "R3" else []
    for removed in dict.fromkeys((name, *own_reasons)):
        rung = known.rungs.get(removed)
        if rung is not None:
            said.append(f"without {removed} {plain_and_stretched(rung)}")
    said += [
        f"{code(row['change'])} {value(row['step_ns'], 'ns')}"
        for row in known.changes
        if row["change"] in advice.changes or (name == "R3" and row["change"].startswith("rank "))
    ]
    if not said:
        return []
    return [
        Statement(
            f"Modelled, everything else as executed ({base}), means over the steps: "
            f"{', '.join(said)}.",
            "ladder",
        )
    ]
