"""Section 1: one sentence by rule, and what it rests on. A refusal is a verdict too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import contract, gap_verdict, traffic, utilisation
from gapscope.report.document import Opportunity, Part, Quantity, Statement, Verdict
from gapscope.report.facts import THRESHOLD, quantity
from gapscope.report.quality import concerns
from gapscope.units import interval, plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

# The card of compute itself; no time of it is known to be recoverable.
KERNELS = "finding-kernels"

_LABELS = {
    "launch_starved": "launch-starved",
    "blocking": "blocking",
    "stalled": "stalled",
    "tail": "tail",
}


def text(amount: Quantity) -> str:
    """A quantity with its unit and range."""
    return interval(amount.value, amount.unit, amount.n, amount.low, amount.high)


def blocking_bound(facts: Facts) -> tuple[str, str]:
    """`lower` or `upper`, and why, for the rank in focus."""
    if facts.focus is None:
        return "", ""
    wait = facts.waits.get(facts.top["rank"])
    doubts = [
        row
        for row in facts.quality
        if row["check_name"] in ("event_edges", "wait_resolution")
        and row["status"] != "ok"
        and row["forbids"]
        and concerns(facts, row)
    ]
    if wait is None and doubts:
        return "lower", (
            "Blocking is a lower bound: the capture records no stream wait that could be "
            "followed to its producer, and such waiting counts as stalled."
        )
    if wait is not None and doubts and wait["unresolved_count"]:
        return "lower", (
            f"Blocking is a lower bound: {wait['unresolved_count']:,} of "
            f"{wait['wait_count']:,} stream waits ({value(wait['unresolved_share'], 'share')}) "
            "lead to no producing op, and their waiting counts as stalled."
        )
    known = "no stream wait is recorded"
    if wait is not None:
        known = f"{wait['resolved_count']:,} of {wait['wait_count']:,} stream waits are resolved"
    return "upper", (
        f"Blocking is an upper bound of what the work itself makes compute wait for: {known}, "
        "stream order counts as a reason, and queue serialization hides in it."
    )


def _has_unjoined(facts: Facts) -> bool:
    """Whether ops without a known launch hide launch-starved time."""
    return any(
        row["check_name"] == "launch_join" and row["status"] != "ok" and concerns(facts, row)
        for row in facts.quality
    )


def is_copy_bound(facts: Facts) -> bool:
    """Whether copies take most of the window, more of it than compute, and are seen to limit it."""
    focus = facts.focus
    return (
        focus is not None
        and focus["copy_ns"] >= 0.5 * focus["step_ns"]
        and focus["copy_ns"] > focus["compute_ns"]
        and traffic.is_limited_by_copies(facts)
    )


def largest_copy(facts: Facts, copies: list[Row]) -> str:
    """The copy direction with the largest volume on the rank in focus, in words."""
    if facts.focus is None:
        return ""
    own = [r for r in copies if r["rank"] == facts.top["rank"] and r["kind"] == "memcpy"]
    if not own:
        return ""
    top = own[0]
    kind = top["copy_kind"] or "copies of unknown direction"
    memory = " to ".join(part for part in (top["src_memory"], top["dst_memory"]) if part)
    rate = f" at {value(top['bytes_per_ns'], 'GB/s')}" if top["bytes_per_ns"] else ""
    size = f", {value(top['bytes'], 'B')}" if top["bytes"] else ""
    of = f" ({memory} memory)" if memory else ""
    return f"{kind}{of}: {plural(top['op_count'], 'copy', 'copies')}{size}{rate}"


def build(facts: Facts, opportunities: tuple[Opportunity, ...], copies: list[Row]) -> Verdict:
    """The verdict, or why there is none."""
    refusal = _refusal(facts)
    if refusal is not None or facts.focus is None or facts.window is None:
        return _withheld(refusal or Statement("No verdict: no budget exists.", "capture"))
    focus = facts.focus
    known = facts.model
    parts = {name: quantity(focus, name) for name in _LABELS}
    bound, why = blocking_bound(facts)
    least = {"blocking"} if bound == "lower" else set()
    if _has_unjoined(facts):
        least.add("launch_starved")
    split = ", ".join(
        f"{label} {'at least ' if name in least else ''}{value(parts[name].value, 'ns')}"
        for name, label in _LABELS.items()
    )
    share = value(focus["compute_share"], "share")
    step = known.amount("observed") if known.has_bound else quantity(focus, "step")
    window = "A step takes" if facts.projection == "device" else "The whole capture lasts"
    if facts.is_inferred:
        window = "A recurring period, taken for a step, lasts"
    absent = f"and is absent {value(focus['compute_absent_ns'], 'ns')}: {split}."
    headline = Statement(
        f"{window} {text(step)} on rank {focus['rank']}; compute runs {share} of it {absent}",
        "split",
    )
    says_bound = focus["blocking_ns"] or bound == "lower"
    bounded = [Statement(why, "bound-of-blocking")] if says_bound else []
    tiles = (
        Part("compute", "compute", quantity(focus, "compute")),
        *(Part(label, name, parts[name]) for name, label in _LABELS.items()),
    )
    if known.has_bound:
        headline = gap_verdict.headline(facts)
        tiles = gap_verdict.parts(facts)
        said = [
            *gap_verdict.statements(facts),
            _basis(facts),
            *_anchor(facts),
            Statement(
                f"By recorded launches and waits alone, compute runs {share} of the step {absent}",
                "split",
            ),
            *_copy_bound(facts, copies),
            *_compute_bound(facts, opportunities),
            *communication(focus),
            *(bounded if known.is_provisional else []),
        ]
    else:
        said = [
            _basis(facts),
            *_anchor(facts),
            *_worst_rank(facts),
            *_copy_bound(facts, copies),
            *_findings(opportunities, facts),
            *_compute_bound(facts, opportunities),
            *communication(focus),
            *bounded,
        ]
    labels = (contract.PERTURBED,) if facts.is_perturbed else ()
    if labels:
        headline = Statement(f"[{', '.join(labels)}] {headline.text}", headline.claim)
    limits = [*contract.perturbation(facts), *contract.covered(facts)]
    return Verdict(
        is_withheld=False,
        headline=headline,
        statements=(
            *limits,
            *said,
            *utilisation.statements(facts),
            *_shared(facts),
            *_caveats(facts),
        ),
        window=facts.projection,
        rank=focus["rank"],
        step_id=facts.at.step_id,
        step=step,
        compute=quantity(focus, "compute"),
        launch_starved=parts["launch_starved"],
        blocking=parts["blocking"],
        stalled=parts["stalled"],
        tail=parts["tail"],
        blocking_bound=bound,
        t_lb=known.amount("t_lb") if known.has_bound else None,
        gap=known.amount("gap") if known.has_bound else None,
        gap_share=known.run["gap_share"] if known.has_bound else None,
        is_provisional=known.is_provisional,
        parts=tiles,
        labels=labels,
    )


def _withheld(headline: Statement) -> Verdict:
    return Verdict(
        is_withheld=True,
        headline=headline,
        statements=(),
        window="",
        rank=None,
        step_id=None,
        step=None,
        compute=None,
        launch_starved=None,
        blocking=None,
        stalled=None,
        tail=None,
        blocking_bound="",
    )


def _refusal(facts: Facts) -> Statement | None:
    if not any(row["op_count"] for row in facts.op_counts):
        return Statement(
            "No verdict: the capture holds no device activity, so there is nothing to budget. "
            + _capture_hint(facts),
            "capture",
        )
    failed = [row for row in facts.quality if row["status"] == "fail" and concerns(facts, row)]
    if failed:
        said = "; ".join(
            f"`{row['check_name']}`: {row['detail']}"
            + (f", which forbids {row['forbids']}" if row["forbids"] else "")
            for row in failed
        )
        return Statement(f"No verdict: the capture does not support one. {said}.", "capture")
    return None


def _capture_hint(facts: Facts) -> str:
    formats = {row["source_format"] for row in facts.ranks}
    if formats == {"nsys"}:
        return "Capture CUDA as well: `nsys profile -t cuda,nvtx`."
    if formats == {"kineto"}:
        return "Capture the device as well: `ProfilerActivity.CUDA` (ROCm too) in `activities`."
    return "Capture the device as well: `nsys profile -t cuda,nvtx`, or `ProfilerActivity.CUDA`."


def _counted(facts: Facts) -> str:
    """`all 3 steps counted`, or which are not and why; of the rank in focus."""
    own = [row for row in facts.steps if row["rank"] == facts.at.rank]
    out = [row for row in own if row["boundary"]]
    if not out:
        count = "the one step" if len(own) == 1 else f"all {len(own):,} steps"
        return f"{count} counted"
    why = "; ".join(f"step {row['step_id']}: {row['boundary']}" for row in out[:3])
    rest = f"; {len(out) - 3:,} more" if len(out) > 3 else ""
    return f"{len(own) - len(out):,} of {plural(len(own), 'step')} counted ({why}{rest})"


def _basis(facts: Facts) -> Statement:
    if facts.projection == "device":
        is_even = facts.top["step_count"] % 2 == 0
        median = "the lower median one" if is_even else "the median one"
        return Statement(
            f"Device time, {_counted(facts)}. The parts are those of step "
            f"{facts.at.step_id}, {'a long one' if facts.model.is_uneven else median}, "
            "and sum to it exactly.",
            "window",
        )
    if facts.steps:
        why = "every step is a boundary step (warm-up, profiler activity or a cut window)"
    else:
        why = "no step was recognised"
    return Statement(
        f"These are figures of the whole capture, because {why}: warm-up and whatever lies between "
        "steps are in them. Name the range that wraps a step, as a regular expression that its "
        "whole text matches: `gapscope ingest --steps 'train_step'`.",
        "window",
    )


def _anchor(facts: Facts) -> list[Statement]:
    if facts.focus is None or facts.projection != "device":
        return []
    source = facts.anchors.get(facts.top["rank"], "unknown")
    if facts.is_inferred:
        return [
            Statement(
                f"No range marks the steps: `{source}` recurred, and its period may be a layer or "
                "a micro-batch instead of a step.",
                "anchor",
            )
        ]
    return [Statement(f"Steps are those of the anchor `{source}`.", "anchor")]


def _worst_rank(facts: Facts) -> list[Statement]:
    """The rank in focus beside those of its part; others run another program."""
    part = facts.parts[facts.at.rank]
    peers = [row for row in facts.summary if facts.parts[row["rank"]] == part]
    if len(peers) < 2:
        return []
    worst, least = peers[0], peers[-1]
    of_part = "" if len(peers) == len(facts.summary) else f" of {part}"
    return [
        Statement(
            f"Of {plural(len(peers), 'rank')}{of_part}, rank {worst['rank']} has compute absent "
            f"longest in its {facts.usual} ({value(worst['compute_absent_ns'], 'ns')}), rank "
            f"{least['rank']} shortest ({value(least['compute_absent_ns'], 'ns')}).",
            "ranks",
        )
    ]


def _copy_bound(facts: Facts, copies: list[Row]) -> list[Statement]:
    if not is_copy_bound(facts) or facts.focus is None:
        return []
    focus = facts.focus
    top = largest_copy(facts, copies)
    return [
        Statement(
            f"Copy-bound, not CPU-bound: copies occupy "
            f"{value(focus['copy_share'], 'share')} of the {facts.noun} and the "
            f"device is idle only {value(focus['idle_share'], 'share')} of it."
            + (f" Largest by time: {top}." if top else ""),
            "transfers",
        )
    ]


def _compute_bound(facts: Facts, opportunities: tuple[Opportunity, ...]) -> list[Statement]:
    """Where kernels fill the window: what would tell how fast they are."""
    card = next((card for card in opportunities if card.id == KERNELS), None)
    if card is None:
        return []
    return [
        Statement(
            f"Compute-bound: compute kernels fill {value(card.step_share, 'share')} of the "
            f"{facts.noun}. How fast they are against what the device could do, timing does not "
            "tell: that is a question for Nsight Compute (section 5 has the command).",
            "kernel-speed",
        )
    ]


def communication(focus: Row) -> list[Statement]:
    """How much communication the window holds and how much of it nothing else covers."""
    if not focus["comm_ns"]:
        return []
    return [
        Statement(
            f"Communication kernels run {value(focus['comm_ns'], 'ns')}, of which "
            f"{value(focus['exposed_comm_ns'], 'ns')} are exposed: no other device op runs then, "
            "an upper bound of what hiding them could give.",
            "budget",
        )
    ]


def _findings(opportunities: tuple[Opportunity, ...], facts: Facts) -> list[Statement]:
    found = [card for card in opportunities if card.id != KERNELS]
    if not found:
        return [
            Statement(
                "No finding: no class of compute-absent time reaches "
                f"{value(THRESHOLD, 'share')} of the {facts.noun}.",
                "split",
            )
        ]
    top = found[0]
    if top.ceiling is None:
        return [
            Statement(
                f"Largest part without compute: {top.title}, {text(top.time)}, "
                f"{value(top.step_share, 'share')} of the {facts.noun}.",
                "split",
            )
        ]
    amount = value(top.time.value, "ns")
    starved = facts.top["launch_starved_ns"]
    if top.id == "finding-launch-starved" and top.time.value != starved:
        amount += f" ({value(starved, 'ns')} less what ends with the launch of a CUDA graph)"
    return [
        Statement(
            f"Largest ceiling{labelled(facts)}: {top.title}, at most {ceiling_text(top.ceiling)} "
            f"if {amount} vanished and nothing else grew. It is a ceiling, not a forecast, and "
            "ceilings do not add.",
            "ceiling",
        )
    ]


def labelled(facts: Facts) -> str:
    """` (perturbed)` where the capture is."""
    return f" ({contract.PERTURBED})" if facts.is_perturbed else ""


def ceiling_text(ceiling: Quantity) -> str:
    """`+35.1 % throughput (n=3, ...)`."""
    return f"+{text(ceiling)} throughput"


def _shared(facts: Facts) -> list[Statement]:
    return [
        Statement(f"Ranks {ranks} share one device and contend for it.", "capture")
        for ranks in facts.shared
    ]


def _caveats(facts: Facts) -> list[Statement]:
    forbidden = list(
        dict.fromkeys(
            row["forbids"]
            for row in facts.quality
            if row["status"] == "warn" and row["forbids"] and concerns(facts, row)
        )
    )
    if not forbidden:
        return []
    return [
        Statement(
            f"The capture does not support: {'; '.join(forbidden)} (section 2).",
            "capture",
        )
    ]
