"""Section 6: what the report may say, how well it is known, and how to show that it is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError
from gapscope.report.document import Claim, Opportunity, Section, Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CLAIMS: dict[str, Claim] = {
    claim.id: claim
    for claim in (
        Claim(
            "capture",
            "What was captured, with which tool, and what that capture cannot support.",
            Status.MEASURED,
            "`v1.rank`, `v1.capture_quality`: counts over the ingested rows.",
            "Count the rows of the source file; a check that disagrees is a bug.",
        ),
        Claim(
            "contract",
            "What was run, and how it was laid out over ranks.",
            Status.UNVERIFIED,
            "`v1.analysis_contract`: as the captures state it, else as `[run]` of gapscope.toml "
            "declares it; what disagrees is the check `contract_contradiction`.",
            "Compare with the configuration of the job.",
        ),
        Claim(
            "perturbation",
            "Whether profiling slowed the run down.",
            Status.MEASURED,
            "`v1.perturbation`: profiled steps that count beside `reference_step_ms`, the declared "
            "steps of the same run that no profiler watched.",
            "Time more unprofiled steps of the same run.",
        ),
        Claim(
            "budget",
            "Times of a step are lengths of unions of device activity, clipped to its window.",
            Status.MEASURED,
            "`v1.step_budget`; audits `budget_closes`, `budget_order` and `absent_closes` hold.",
            "Sweep the intervals of `v1.op` in any other language and compare the nanoseconds.",
        ),
        Claim(
            "window",
            "A device window runs from the end of the last op launched in the step before to the "
            "end of the last op launched in this one.",
            Status.MEASURED,
            "`v1.step_window`; audit `device_windows_tile`: no time between steps is lost.",
            "Name another range with `gapscope ingest --steps` and compare the windows.",
        ),
        Claim(
            "anchor",
            "The recognised steps are the steps of the program.",
            Status.INFERRED,
            "`v1.step_range`: the anchor, and how a second anchor compares, stand in section 2.",
            "Name the range that wraps a step, as a regular expression that its whole text "
            "matches: `gapscope ingest --steps 'train_step'`.",
        ),
        Claim(
            "split",
            "Compute-absent time is launch-starved until the next compute op was issued, blocking "
            "while its latest recorded producer still ran, stalled for the rest, and tail after "
            "the last compute op of the window.",
            Status.MEASURED,
            "`v1.compute_gap`, `v1.absent_piece`: launches and recorded edges only. It cannot see "
            "queue serialization, which hides in blocking and in stalled.",
            "Delay the launching thread by a known sleep: launch-starved must grow by it.",
        ),
        Claim(
            "bound-of-blocking",
            "Whether blocking is a lower or an upper bound.",
            Status.INFERRED,
            "`v1.event_edge`: the share of stream waits whose producing op is known.",
            "Capture with event records traced and compare the blocking time.",
        ),
        Claim(
            "blame",
            "Blocking time followed backwards over recorded producers: who ran, was launched late, "
            "or stalled.",
            Status.INFERRED,
            "`v1.blame_chain`; audit `chain_equals_blocking`. Only recorded edges are followed.",
            "Shorten the op that is blamed: blocking must shrink by what it lost.",
        ),
        Claim(
            "classes",
            "Whether a kernel computes, communicates or packs is decided by its name.",
            Status.INFERRED,
            "`v1.kernel_rule`: ordered rules, all listed in section 3 with what they matched.",
            "Read the names of kernels above 1 % of the step; a wrong class is a bug.",
        ),
        Claim(
            "metrics",
            "What hardware counters said while exactly one operator class, or op, ran.",
            Status.MEASURED,
            "`v1.operator_metric`: samples, how many, and how exclusive. Whether a stamp begins or "
            "ends its sample is told by what fits the device's own activity "
            "(`v1.metric_alignment`). A percentage is of peak and does not say what limits a "
            "kernel: Nsight Compute does.",
            "Sample again at another frequency: means of long kernels must stay.",
        ),
        Claim(
            "gpu-clock",
            "What share of longer compute goes with a lower clock of the device.",
            Status.INFERRED,
            "`v1.step_gpu_clock`: time of compute x mean clock of the samples in it. It takes all "
            "compute to go with that clock; kernels that wait for memory do so less.",
            "Lock the clocks (`nvidia-smi --lock-gpu-clocks`) and capture again: the steps must "
            "differ by what is said to be left.",
        ),
        Claim(
            "ceiling",
            "`T/(T-R) - 1` is the most that a step could speed up if the time R of one class "
            "vanished and nothing else grew.",
            Status.INFERRED,
            "Arithmetic on `v1.step_budget`. The classes are disjoint, the ceilings still do not "
            "add: what one change frees, other waiting may take.",
            "Make the change and measure: a larger gain refutes the split.",
        ),
        Claim(
            "ranks",
            "Durations inside one rank are compared between ranks; instants are not.",
            Status.MEASURED,
            "`v1.step_budget` of each rank on its own clock.",
            "Capture the same ranks again: what repeats is the rank's, what rotates is not.",
        ),
        Claim(
            "transfers",
            "Copies and collectives: counts, bytes and durations as the tracer recorded them.",
            Status.MEASURED,
            "`v1.copy_summary`, `v1.collective`, `v1.kernel_inventory`. A duration contains "
            "waiting for other ranks.",
            "Compare with a bandwidth test of the same link and message size.",
        ),
        Claim(
            "families",
            "Communication by library and role: volume, exposed, blocking and overlapped. Exposed "
            "is an upper bound of what hiding it could give.",
            Status.MEASURED,
            "`v1.family_time`: unions against all other device work, and recorded edges followed "
            "back. The library and the role are told by the kernel's name "
            "(`v1.communication_family`); a copy counts only if a collective's own call issued it "
            "(`v1.collective_copy`).",
            "Hide it (prefetch, another order) and measure: a step shorter by more than what was "
            "exposed refutes it.",
        ),
        Claim(
            "copies",
            "How busy copies keep their engine, what rate they reach, and whether compute waits "
            "for them. A limit needs an engine busy 90 % of the window, or compute that waits 1 % "
            "of it by recorded edges.",
            Status.MEASURED,
            "`v1.copy_time`. Peaks are stated (`v1.link_peak`, `[device]` of gapscope.toml); the "
            "best rate is of one copy of the capture.",
            "Measure the link with a bandwidth test of the same direction and size.",
        ),
        Claim(
            "host",
            "What the launching threads called, and how far they ran ahead of the device.",
            Status.MEASURED,
            "`v1.api_summary`, `v1.launch_pacing`, `v1.host_sync_time`. Durations contain the "
            "tracer's own cost.",
            "Time the same calls in an unprofiled run.",
        ),
        Claim(
            "advice",
            "What to try follows from the mechanism. It was not tried on this workload.",
            Status.UNVERIFIED,
            "None from this capture.",
            "Try it, capture again, and compare the step time.",
        ),
        Claim(
            "mfu",
            "Model FLOP utilisation: the work of the declared model and batch over the time of the "
            "step and the peak of all devices.",
            Status.INFERRED,
            "`v1.step_mfu`, `v1.model_flops`, `v1.mfu_basis`. Only the time is measured; the work "
            "follows from declared shapes, the peak from a data sheet or the declaration.",
            "Sum the weights of `v1.model_flops`: they must be those of the model.",
        ),
        Claim(
            "stacks",
            "Which line of the program launched what compute waited for.",
            Status.INFERRED,
            "`v1.launch_stack`, `v1.stack_link`, `v1.root_cause`: by rank, thread and number of "
            "the launch, or by the Python calls open at it.",
            "Delay the launches of one line by a known sleep: its time must grow by it.",
        ),
        Claim(
            "confidence",
            "How far a card can be relied on: high without a doubt, medium with one, low with "
            "more.",
            Status.INFERRED,
            "Rules over this capture: how steps were found and how many count, how far they "
            "differ, whether waits are resolved and a replay agrees. The doubts are named.",
            "Capture more steps, or with what is missing: the doubt must go, and the time stay.",
        ),
        Claim(
            "kernel-speed",
            "Whether kernels run as fast as the device allows is not known.",
            Status.UNVERIFIED,
            "None: a timing capture holds durations, and no counters of what limits a kernel.",
            "Measure the kernel with Nsight Compute: its speed of light is the answer.",
        ),
        Claim(
            "t-lb",
            "T_lb is the shortest step that the rules of the workload allow for the work as "
            "measured, in host issue order, with the buffers that the run has. It can be reached; "
            "it is not the minimum possible.",
            Status.INFERRED,
            "`v1.step_bound`, `v1.binding_chain`. Durations are measured, overlap included. Every "
            "analysis checks compute <= T_lb <= observed on each rank and step.",
            "Measure a step of the same work below T_lb.",
        ),
        Claim(
            "rules",
            "What must end before what starts is read in the framework's source, never in the run "
            "that is judged.",
            Status.SOURCE_VERIFIED,
            "`gapscope/model/rules/fsdp2.py` names file and function for each rule; check "
            "`rule_violations` counts instances that the run breaks.",
            "Find one op that started before its rule allows: the check must count it.",
        ),
        Claim(
            "model-checks",
            "Checks of the dependency model, and what each of them withholds.",
            Status.MEASURED,
            "`v1.model_check`: measured value and limit of each.",
            "Work out the measured value from `v1.step_gap` and `v1.what_if`.",
        ),
        Claim(
            "gap-classes",
            "Each nanosecond without compute has one cause: a late launch (R1), a queue (R2), "
            "another rank (R3), the program itself (H1, H2), or none that was found.",
            Status.INFERRED,
            "`v1.gap_piece`, `v1.gap_cause`; the sums close to the nanosecond, which proves the "
            "books and not the causes. Refused where over 5 % of a step has no cause.",
            "Inject a known sleep on one rank: R1 must grow by it there and R3 elsewhere.",
        ),
        Claim(
            "ladder",
            "How long the step would be without a mechanism, or after one change, everything else "
            "as executed.",
            Status.INFERRED,
            "`v1.what_if_step`, `v1.what_if_change`: a replay of every op, independent of the "
            "classes; refused where the replay as executed misses the run by over 2 %.",
            "Make the change and measure the step.",
        ),
        Claim(
            "hardware-queues",
            "Which streams share a hardware queue.",
            Status.INFERRED,
            "`v1.hardware_queue`: late starts that fit, and counter-examples.",
            "Run again with `CUDA_DEVICE_MAX_CONNECTIONS=8`: R2 in hardware queues must go.",
        ),
        Claim(
            "clock",
            "How well instants of different ranks can be compared.",
            Status.MEASURED,
            "`v1.rank_clock`: spread of the ends of matched collectives. Differences below the "
            "residual are not resolved.",
            "Compare with a ping-pong exchange of clocks between the hosts.",
        ),
        Claim(
            "arrivals",
            "Which rank came last at the collectives, and how long others waited for it.",
            Status.MEASURED,
            "`v1.collective_instance`, `v1.arrival_summary`: matched operations only, on the "
            "common clock.",
            "Delay one rank by a known time: it must come last.",
        ),
        Claim(
            "lateness",
            "How late a rank came to collectives, and how much of that others waited with nothing "
            "to compute.",
            Status.MEASURED,
            "`v1.rank_lateness`: unions over matched collectives, beyond three clock residuals.",
            "Delay one rank by a known time before each step: it must hold up the others by it.",
        ),
        Claim(
            "straggler",
            "Whether one rank holds up its part again and again, or chance spreads it.",
            Status.INFERRED,
            "`v1.step_laggard`, `v1.part_straggler`: who holds up more than three residuals and "
            "2 % of the step, and a binomial test over these steps.",
            "Capture more steps, or delay ranks by turns: the verdict must become rotating.",
        ),
        Claim(
            "parts",
            "Which ranks run the same program and may be compared.",
            Status.INFERRED,
            "`v1.rank_part`: declared, else by types and counts of collectives and of device ops.",
            "Declare the parts in `[parts]` of gapscope.toml and ingest again.",
        ),
        Claim(
            "bandwidth",
            "What collectives of a size reached while nobody was waited for.",
            Status.MEASURED,
            "`v1.collective_bandwidth`: last aligned start to last aligned end.",
            "Run nccl-tests with these sizes on the same ranks.",
        ),
        Claim(
            "no-bound",
            "How short the step could be at best is not said.",
            Status.UNVERIFIED,
            "`v1.model_check` says what is missing.",
            "Capture a workload with a rule pack (FSDP2), and GapScope must give a bound.",
        ),
    )
}


def references(
    verdict: Verdict, sections: Iterable[Section], opportunities: Iterable[Opportunity]
) -> Iterator[tuple[str, str]]:
    """Every claim that the document leans on, with the place that leans on it."""
    for statement in (verdict.headline, *verdict.statements):
        yield statement.claim, "verdict"
    for section in sections:
        for statement in (*section.statements, *section.missing):
            yield statement.claim, section.id
        for part in (*section.figures, *section.tables):
            yield part.claim, part.id
    for card in opportunities:
        yield card.claim, card.id
        for statement in (card.mechanism, *card.evidence, card.bound, card.confidence):
            yield statement.claim, card.id


def check(
    claims: tuple[Claim, ...],
    verdict: Verdict,
    sections: Iterable[Section],
    opportunities: Iterable[Opportunity],
) -> None:
    """Raise when something is said that no row of section 6 covers."""
    known = {claim.id for claim in claims}
    for claim, place in references(verdict, sections, opportunities):
        if claim not in known:
            raise GapscopeError(
                "claim-without-status",
                f"`{place}` of the report leans on claim `{claim}`, which has no status row",
                "report this: it is a bug in GapScope",
            )


def used(
    verdict: Verdict, sections: Iterable[Section], opportunities: Iterable[Opportunity]
) -> tuple[Claim, ...]:
    """The claims that this document makes, in registry order."""
    named = {claim for claim, _ in references(verdict, sections, opportunities)}
    return tuple(claim for claim in CLAIMS.values() if claim.id in named)
