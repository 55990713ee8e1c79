"""An action is named only where the evidence that it needs is in the capture."""

from __future__ import annotations

import pytest

from gapscope.report import actions
from gapscope.report.build import build

from .tiny import STEP, US, Maker, two_ranks

# What `setting` and the shape of pieces can earn; a word that nothing earns would hide an action.
KNOWN = {
    "cuda", "hip", "nsys", "kineto", "fsdp", "no-fsdp", "pageable", "not-pageable", "comm",
    "no-graph", "opaque-graph", "kernel", "short-kernels", "outside-calls", "layout", "both-ways",
    "late-rank", "axis-dp", "axis-ep", "axis-cp", "axis-tp", "axis-pp", "short", "long", "grain",
}  # fmt: skip


def _tried(made: Maker, card: str) -> str:
    document = build(made.run())
    found = next(one for one in document.opportunities if one.id == f"finding-{card}")
    return " ".join(found.what_to_try)


def test_every_action_belongs_to_a_cost_and_can_be_earned() -> None:
    made = two_ranks()
    run = made.run()
    rows = run.sql(actions.ACTIONS).to_dicts()
    assert {row["cost"] for row in rows} == {
        row["cost"] for row in run.sql(actions.COSTS).to_dicts()
    }
    assert {word for row in rows for word in row["needs"].split()} <= KNOWN


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "--tp-comm-overlap"),
        ("mesh_tp", "--tp-comm-overlap"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "--overlap-grad-reduce"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "--overlap-moe-expert-parallel-comm"),
        ("CONTEXT_PARALLEL_GROUP", "--cp-comm-type"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "--num-layers-per-virtual-pipeline-stage"),
    ],
)
def test_a_knob_follows_the_group_that_blocked(description: str, words: str) -> None:
    made = two_ranks()
    for rank in (0, 1):
        for step in range(3):
            made.add(
                "collective", rank=rank, collective_id=step, op_id=3 * step + 1, group_name="g",
                group_desc=description, type="all_gather",
            )  # fmt: skip
    tried = _tried(made, "blocking")
    knobs = {
        "--tp-comm-overlap", "--overlap-grad-reduce", "--overlap-moe-expert-parallel-comm",
        "--cp-comm-type", "--num-layers-per-virtual-pipeline-stage",
    }  # fmt: skip
    assert {knob for knob in knobs if knob in tried} == {words}


def test_without_a_described_group_no_dimension_is_named() -> None:
    tried = _tried(two_ranks(), "blocking")
    assert "Megatron" not in tried
    assert "Start collectives earlier" in tried


def _starved(call_ns: int) -> Maker:
    """Steps in which 39 us pass before the second gemm is issued, `call_ns` of it in a call."""
    made = Maker()
    made.rank(0)
    for step in range(4):
        t = step * STEP
        made.add(
            "range", rank=0, range_id=step, process_id=100, tid=1, domain="default",
            kind="push_pop", name_id=made.name(0, f"step {step}"), start_ns=t, end_ns=t + STEP,
        )  # fmt: skip
        made.launch(0, 2 * step, "my_gemm", 7, (t, t + US), (t + 2 * US, t + 10 * US))
        made.launch(
            0, 2 * step + 1, "my_gemm", 7, (t + 49 * US, t + 50 * US), (t + 51 * US, t + STEP)
        )
        made.add(
            "api_call", rank=0, call_id=100 + step, process_id=100, tid=1, domain="runtime",
            name_id=made.name(0, "cudaStreamSynchronize"), correlation_id=1000 + step,
            start_ns=t + 11 * US, end_ns=t + 11 * US + call_ns,
        )  # fmt: skip
    return made


@pytest.mark.parametrize(("call_ns", "is_named"), [(5 * US, True), (30 * US, False)])
def test_only_a_host_outside_calls_earns_the_collector(call_ns: int, is_named: bool) -> None:
    tried = _tried(_starved(call_ns), "launch-starved")
    assert ("--manual-gc" in tried) is is_named
    assert ("taskset" in tried) is is_named


def test_every_card_says_bound_confidence_and_how_to_verify() -> None:
    for card in build(two_ranks().run()).opportunities:
        assert card.bound.text.endswith(".")
        assert card.confidence.text.split(":")[0] in ("High", "Medium", "Low")
        assert card.verify.startswith("Capture again the same way and run `gapscope compare")


def test_one_step_is_less_to_rely_on_than_three() -> None:
    one = Maker()
    one.rank(0)
    one.step(0, 0, label="step 0")
    few = build(one.run()).opportunities[0].confidence.text
    assert few.startswith(("Medium", "Low"))
    assert "only 1 step counted" in few or "no step" in few
