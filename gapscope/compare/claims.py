"""What a comparison may say, how well it is known, and how to show that it is wrong."""

from __future__ import annotations

from collections.abc import Iterable

from gapscope.errors import GapscopeError
from gapscope.report.document import Claim, Status

CLAIMS: dict[str, Claim] = {
    claim.id: claim
    for claim in (
        Claim(
            "comparable",
            "Which runs may be compared, and what a difference between them forbids to say.",
            Status.MEASURED,
            "`pair.comparability`: what both captures state and launch, side by side.",
            "Find a setting or a size that differs and stands in neither capture.",
        ),
        Claim(
            "difference",
            "How much longer or shorter a step of B is.",
            Status.MEASURED,
            "`pair.step_delta`: device windows of the steps that count, on each rank; the run's "
            "step is the longest over the ranks that both have.",
            "Time both programs without a profiler, several times each, and compare.",
        ),
        Claim(
            "interval",
            "How sure the difference is.",
            Status.INFERRED,
            "Bootstrap over steps, or the range of few steps. Steps of one capture are taken as "
            "independent; what changes from run to run is in no capture and in no interval.",
            "Capture each program again: differences between runs of one program must lie within.",
        ),
        Claim(
            "ledger",
            "Which parts of the step make the difference.",
            Status.MEASURED,
            "`pair.part_delta`, `pair.ledger_residual`: parts of each window sum to it, so their "
            "differences sum to that of the step.",
            "Sum the rows; the residual is computed from whole nanoseconds.",
        ),
        Claim(
            "mechanism",
            "Which mechanism makes the difference.",
            Status.INFERRED,
            "`v1.step_gap` of both runs: classes by the rules of the workload.",
            "Undo what the mechanism stands for and measure: the difference must go.",
        ),
        Claim(
            "charge",
            "At which node, range or kernel the difference shows.",
            Status.MEASURED,
            "`pair.charge_delta`, `pair.charge_residual`: each instant goes to the compute op that "
            "runs, else to the one that is waited for. Where it shows is not where its cause is.",
            "Sum the rows against the step.",
        ),
        Claim(
            "volume",
            "Which device ops run longer or more often.",
            Status.MEASURED,
            "`pair.kernel_delta`: sums of durations, in which overlap counts twice.",
            "Count them in the source files.",
        ),
        Claim(
            "unit",
            "A launch of the named kernel stands for the same work in both captures.",
            Status.INFERRED,
            "`pair.anchor`: counts of most kernels changed by the same factor.",
            "Mark steps in the program, and compare these.",
        ),
        Claim(
            "cause",
            "Which of the settings that differ is the reason is not said.",
            Status.UNVERIFIED,
            "`pair.comparability` lists them; a comparison of two runs cannot tell them apart.",
            "Change one at a time.",
        ),
    )
}


def used(names: Iterable[str]) -> tuple[Claim, ...]:
    """The claims of these names, in registry order.

    Raises GapscopeError `claim-without-status` for a name that is none.
    """
    wanted = set(names)
    unknown = sorted(wanted.difference(CLAIMS))
    if unknown:
        raise GapscopeError(
            "claim-without-status",
            f"the comparison leans on claim `{unknown[0]}`, which has no status row",
            "report this: it is a bug in GapScope",
        )
    return tuple(claim for claim in CLAIMS.values() if claim.id in wanted)
