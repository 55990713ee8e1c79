"""Gains by evidence, and MFU only of what was declared."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gapscope.render import text
from gapscope.report.build import build

from .tiny import US, Maker, modelled, two_ranks

if TYPE_CHECKING:
    from gapscope.report.document import Document

MODEL = {
    "layers": 1, "hidden": 8, "heads": 2, "ffn_hidden": 16, "gated": False, "vocab": 10,
    "peak_tflops": 1.0, "recompute": "full", "causal": True,
}  # fmt: skip
# Projections 4 x 8 x 8, MLP 2 x 8 x 16, logits 80: 592 weights; attention 12 x 1 x 8 x 5 forward
# and backward of a sequence of 5.
TOKEN_FLOPS = 6 * (256 + 256 + 80) + 12 * 8 * 5
RUN = {"sequence_length": 5, "global_batch": 4000, "precision": "bf16", "world_size": 2}
TOKENS = 5 * 4000


def _declared(made: Maker, **tables: dict[str, Any]) -> Document:
    for name, table in tables.items():
        made.add("run_option", name=name, value=json.dumps(table))
    return build(made.run())


def _verdict(document: Document) -> str:
    return " ".join(item.text for item in document.verdict.statements)


def _gains(document: Document) -> dict[tuple[str, str], dict[str, Any]]:
    section = document.section("opportunities")
    table = next(table for table in section.tables if table.id == "gains")
    keys = [column.key for column in table.columns]
    rows = [dict(zip(keys, row, strict=True)) for row in table.rows]
    return {(row["basis"], row["cost"]): row for row in rows}


def test_nothing_is_said_of_mfu_but_what_is_missing() -> None:
    document = build(two_ranks().run())
    assert "MFU" not in _verdict(document)
    missing = " ".join(item.text for item in document.section("budget").missing)
    assert "No MFU: gapscope.toml does not declare [model]" in missing


def test_mfu_is_declared_work_over_measured_time() -> None:
    document = _declared(two_ranks(), model=MODEL, run=RUN)
    # Two devices of 1 TFLOP/s, 100 us: 2e8 FLOP at most.
    mfu = TOKENS * TOKEN_FLOPS / 2e8
    assert f"MFU is {100 * mfu:.1f} % (n=3" in _verdict(document)
    assert "1.0 TFLOP/s (as declared)" in _verdict(document)
    assert "HFU, with what is recomputed" in _verdict(document)
    held = _gains(document)["recorded launches and waits", "blocking"]
    assert held["recoverable"].value == 20 * US
    # The ceiling of MFU is that of throughput, while the work stays.
    assert held["mfu"].value == pytest.approx(mfu * (1 + held["ceiling"].value))
    assert held["status"] == "measured"


def test_a_contradicted_world_size_is_no_basis_of_mfu() -> None:
    document = _declared(two_ranks(), model=MODEL, run={**RUN, "world_size": 4})
    assert "MFU" not in _verdict(document)
    assert "mfu" not in next(iter(_gains(document).values()))
    missing = " ".join(item.text for item in document.section("budget").missing)
    assert "No MFU: what it rests on is contradicted (world_size: declared 4, the" in missing


def test_more_than_the_peak_is_a_wrong_declaration() -> None:
    document = _declared(two_ranks(), model=MODEL, run={**RUN, "global_batch": 400_000})
    assert "No MFU: what is declared would be" in _verdict(document)
    assert "mfu" not in next(iter(_gains(document).values()))


def test_a_profiler_that_slowed_nothing_down_is_said_to_have() -> None:
    document = _declared(two_ranks(), run={**RUN, "reference_step_ms": [0.0995, 0.1, 0.1005]})
    assert "erturbed" not in _verdict(document)
    said = " ".join(text.render(document).split())
    assert (
        "Not materially perturbed: profiled steps of rank 0 take 100.0 us (n=3, 98.00 us to 100.0 "
        "us), unprofiled ones 100.0 us (n=3, 99.50 us to 100.5 us): 0.00 % (the most of 2 ranks)."
        in said
    )
    assert "aterially" not in text.render(build(two_ranks().run()))


def test_replay_and_rules_stand_beside_and_are_not_added() -> None:
    gains = _gains(build(modelled().run()))
    replay = gains["replay without it", "R1 late launch"]
    assert (replay["recoverable"].value, replay["status"]) == (5 * US, "inferred")
    assert gains["replay without it", "R1+R2+R3"]["recoverable"].value == 23 * US
    assert ("classes above the bound", "R3 cross-rank skew") in gains
    assert not any(cost == "total" for _, cost in gains)


def test_refused_classes_are_no_gain() -> None:
    gains = _gains(build(modelled(is_provisional=True).run()))
    assert not any(basis == "classes above the bound" for basis, _ in gains)


def test_above_steps_without_a_profiler_only_the_bound_is_compared() -> None:
    document = _declared(modelled(), run={"reference_step_ms": [0.09, 0.0901, 0.0902]})
    row = _gains(document)["declared steps without a profiler", "all above it"]
    assert row["status"] == "unverified"
    assert row["label"] == "perturbed"
    bound = document.verdict.t_lb.value
    assert row["recoverable"].value == 90_100 - bound
