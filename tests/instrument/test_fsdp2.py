"""What FSDP2 says through the instrument, held against torch.profiler on the same steps."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.instrument.conftest import Rank, Trained

SCENARIOS = (
    "plain",
    "prefetch",
    "int",
    "hybrid",
    "list",
    "no-root",
    "microbatches",
    "compiled",
)
Train = Callable[[str], Trained]


def nesting(spans: list[tuple[int, str, float, float]]) -> dict[int, list[tuple[int, str]]]:
    """(depth, text) in the order of starts, by thread."""
    shape: dict[int, list[tuple[int, str]]] = {}
    ends: dict[int, list[float]] = {}
    for tid, text, start, end in sorted(spans, key=lambda s: (s[2], -s[3])):
        open_ends = ends.setdefault(tid, [])
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        shape.setdefault(tid, []).append((len(open_ends), text))
        open_ends.append(end)
    return shape


def profiled(path: Path) -> list[tuple[int, str, float, float]]:
    events = json.loads(path.read_text())["traceEvents"]
    return [
        (event["tid"], event["name"], event["ts"], event["ts"] + event["dur"])
        for event in events
        if event.get("cat") == "user_annotation" and is_label(event["name"])
    ]


def is_label(text: str) -> bool:
    return text.startswith(("FSDP::", "Optimizer.step#"))


def traced(rank: Rank) -> list[tuple[int, str, float, float]]:
    return [
        (r.tid, r.text, r.start_ns, r.end_ns)
        for r in rank.ranges()
        if r.domain == "gapscope" and is_label(r.text)
    ]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_labels_are_those_of_the_profiler(train: Train, scenario: str):
    """Every label, on its thread, with its text, in its order and at its depth."""
    trained = train(scenario)
    for rank, kineto in zip(trained.ranks, trained.kineto, strict=True):
        expected = nesting(profiled(kineto))
        assert sum(map(len, expected.values())) > 50
        assert nesting(traced(rank)) == expected
        assert rank.record["faults"] == {}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_range_is_closed(train: Train, scenario: str):
    (still_open,) = [r for r in train(scenario).ranks[0].ranges() if r.end_ns == -1]
    assert still_open.text == "step 3"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_steps_follow_each_other(train: Train, scenario: str):
    for rank in train(scenario).ranks:
        steps = rank.ours("step ")
        assert [step.text for step in steps] == ["step 0", "step 1", "step 2", "step 3"]
        for before, after in pairwise(steps):
            assert before.end_ns <= after.start_ns
            assert not [r for r in rank.ranges() if before.end_ns < r.start_ns < after.start_ns]
        optimizers = rank.ours("Optimizer.step#AdamW.step")
        assert len(optimizers) == 3
        assert all(
            s.start_ns < o.end_ns <= s.end_ns for s, o in zip(steps, optimizers, strict=False)
        )
        assert rank.record["steps"] == {"completed": 3, "source": "optimizer"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_collectives_are_numbered_alike_on_all_ranks(train: Train, scenario: str):
    by_rank = []
    for rank in train(scenario).ranks:
        groups: dict[tuple[str, str], list[tuple]] = {}
        for one in rank.ours("collective "):
            said = one.said
            message = (said["type"], said["dtype"], said["in"], said["out"], said["size"])
            groups.setdefault((said["group"], said["ranks"]), []).append((one.payload, *message))
        for (_, ranks), issued in groups.items():
            assert [number for number, *_ in issued] == list(range(len(issued)))
            assert f"{rank.record['rank']}" in ranks
        by_rank.append(groups)
        counted = {(g["name"], g["ranks"]): g["collectives"] for g in rank.record["groups"]}
        assert counted == {key: len(issued) for key, issued in groups.items()}
    for groups in by_rank:
        for key, issued in groups.items():
            same = [other[key] for other in by_rank if key in other]
            assert len(same) == issued[0][-1]
            assert all(other == issued for other in same)


def gathers(rank: Rank, step: int = 1) -> list[tuple[str, str, bool]]:
    """(phase, unit, whether it did something) of the unshards of a step."""
    steps = rank.ours("step ")
    return [
        (said["phase"], said["unit"], said["is_real"])
        for anchor in rank.ours("anchor ")
        if steps[step].start_ns <= anchor.start_ns < steps[step].end_ns
        for said in [anchor.said]
        if said["what"] == "unshard"
    ]


def real(found: list[tuple[str, str, bool]]) -> list[tuple[str, str]]:
    return [(phase, unit) for phase, unit, is_real in found if is_real]


FORWARD = [("FORWARD", unit) for unit in ("", "layers.0", "layers.1", "layers.2")]
BACKWARD = [("PRE_BACKWARD", unit) for unit in ("layers.2", "layers.1", "layers.0")]


def test_unshards_of_the_default(train: Train):
    """Backward prefetches each unit before its own hook, which then has nothing to do."""
    found = gathers(train("plain").ranks[0])
    assert real(found) == FORWARD + BACKWARD
    idle = [(phase, unit) for phase, unit, is_real in found if not is_real]
    assert idle == [("PRE_BACKWARD", ""), *BACKWARD]


def test_unshards_that_are_prefetched(train: Train):
    found = gathers(train("prefetch").ranks[0])
    assert real(found) == FORWARD + BACKWARD
    # The first layer asks for the two behind it, whose own hooks come later and find them there.
    idle = [(phase, unit) for phase, unit, is_real in found if not is_real]
    assert idle[:2] == [("FORWARD", "layers.1"), ("FORWARD", "layers.2")]


def test_units_of_a_list_and_of_a_root_without_parameters(train: Train):
    units = [said["unit"] for said in train("list").ranks[0].record["roots"][0]["units"]]
    assert units == ["", "layers.0", "layers.1", "layers.2", "norm, head"]
    (root,) = train("no-root").ranks[0].record["roots"]
    assert root["has_parameters"] is False
    assert [said["unit"] for said in root["units"]] == [
        *("embed", "layers.0", "layers.1", "layers.2", "norm, head")
    ]
    assert {a.said["unit"] for a in train("no-root").ranks[0].ours("anchor ")} == {
        *("embed", "layers.0", "layers.1", "layers.2", "norm, head")
    }


def test_groups_have_their_place_below_the_root(train: Train):
    places = {
        (a.said["unit"], a.said["root"], a.said["group"])
        for a in train("plain").ranks[1].ours("anchor ")
    }
    assert places == {("", 0, 0), ("layers.0", 0, 1), ("layers.1", 0, 2), ("layers.2", 0, 3)}


def test_settings_of_the_units(train: Train):
    (root,) = train("plain").ranks[0].record["roots"]
    assert [u["reshard_after_forward"] for u in root["units"]] == [False, True, True, True]
    assert [u["elements"] for u in root["units"]] == [372, 1072, 1072, 1072]
    (root,) = train("int").ranks[0].record["roots"]
    assert [u["reshard_after_forward"] for u in root["units"]] == [2, 2, 2, 2]
    (root,) = train("hybrid").ranks[0].record["roots"]
    assert {(u["shard_size"], u["replicate_size"]) for u in root["units"]} == {(2, 2)}
    (root,) = train("list").ranks[0].record["roots"]
    assert {(u["param_dtype"], u["reduce_dtype"]) for u in root["units"]} == {
        ("bfloat16", "float32")
    }
    (root,) = train("prefetch").ranks[0].record["roots"]
    assert root["units"][1]["forward_prefetch"] == ["layers.1", "layers.2"]
    assert root["units"][3]["backward_prefetch"] == ["layers.1", "layers.0"]


def test_int_gathers_again_in_a_smaller_group(train: Train):
    rank = train("int").ranks[3]
    sizes = [
        (said["size"], said["in"], said["out"])
        for one in rank.ours("collective ")
        for said in [one.said]
        if said["type"] == "all_gather"
    ]
    assert {(4, 268, 1072), (2, 536, 1072)} <= set(sizes)
    reshards = {
        (said["phase"], said["unit"])
        for a in rank.ours("anchor ")
        for said in [a.said]
        if said["what"] == "reshard" and said["is_real"]
    }
    assert ("FORWARD", "layers.0") in reshards


def test_hybrid_sharding_says_its_all_reduces(train: Train):
    rank = train("hybrid").ranks[1]
    said = [one.said for one in rank.ours("collective ")]
    assert {(s["type"], s["ranks"]) for s in said} == {
        ("all_gather", "[0, 1]"),
        ("reduce_scatter", "[0, 1]"),
        ("all_reduce", "[1, 3]"),
    }
    assert sum(s["type"] == "all_reduce" for s in said) == 3 * 4


def test_mixed_precision_gathers_and_reduces_in_its_types(train: Train):
    said = [one.said for one in train("list").ranks[0].ours("collective ")]
    assert {(s["type"], s["dtype"]) for s in said} == {
        ("all_gather", "bfloat16"),
        ("reduce_scatter", "float32"),
    }


def test_only_the_last_microbatch_reduces(train: Train):
    rank = train("microbatches").ranks[0]
    step = rank.ours("step ")[1]
    kinds = [
        one.said["type"]
        for one in rank.ours("collective ")
        if step.start_ns <= one.start_ns < step.end_ns
    ]
    assert kinds.count("reduce_scatter") == 4
    # Resharding goes on, also of the root.
    assert kinds.count("all_gather") == 2 * 7


def test_clocks_of_one_host_are_one_clock(train: Train):
    first, second = train("plain").ranks
    assert first.record["clock"]["rank"] == 0
    assert first.record["clock"]["samples"] == []
    samples = second.record["clock"]["samples"]
    assert [sample["phase"] for sample in samples] == ["start", "end"]
    for sample in samples:
        assert abs(sample["offset_ns"]) <= sample["uncertainty_ns"]
    assert samples[1]["at_ns"] > samples[0]["at_ns"]
    assert second.record["clock"]["boot"] == second.record["clock"]["reference_boot"]
