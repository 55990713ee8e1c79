"""What a comparison says of pairs whose difference is known."""

from __future__ import annotations

import pytest

from gapscope.errors import GapscopeError
from gapscope.pair import pair_of

from .pairs import US, compare, ledger, longer, made, model, part, run_of, verdicts


@pytest.fixture(scope="module")
def seven():
    """Compute that is 7 us longer on both ranks."""
    return compare(run_of(), run_of(longer_by=7))


def test_a_run_against_itself_differs_by_nothing():
    document = compare(run_of(), run_of())
    assert document.is_comparable
    assert document.run.median_delta_ns == 0
    # Never called equal: this capture cannot tell smaller differences than its steps have.
    assert "not resolved: 0 ns" in document.headline.text
    for item in document.ledgers:
        assert all(line.delta_ns == 0 for line in item.lines), item.id
        assert (item.residual_ns, item.median_residual_ns or 0) == (0, 0)
    assert document.volumes is not None
    assert document.volumes.lines == ()
    assert not any("mean changes" in statement.text for statement in document.statements)


def test_longer_compute_is_found_whole_where_it_is(seven):
    assert seven.run.median_delta_ns == 7 * US
    assert seven.run.median_interval.sign == 1
    assert seven.headline.text.startswith("A step of B is 7.00 us (7.0 %) longer: ")
    assert part(seven, "split-rank-0", "compute").delta_ns == 7 * US
    assert part(seven, "device-rank-0", "compute").median_delta_ns == 7 * US
    kernel = part(seven, "kernel-rank-0", "other_gemm")
    assert (kernel.delta_ns, kernel.compute_delta_ns, kernel.wait_delta_ns) == (7 * US, 7 * US, 0)
    assert part(seven, "kernel-rank-0", "my_gemm").delta_ns == 0
    assert [line.name for line in seven.volumes.lines] == ["other_gemm"]


def test_a_later_launch_changes_no_step_but_its_parts():
    document = compare(run_of(), run_of(late=3))
    # The gemm is shorter by as much.
    assert document.run.median_delta_ns == 0
    assert part(document, "split-rank-0", "compute").delta_ns == -3 * US
    # Steps begin where the first launch begins, so the first of them loses what others wait.
    assert part(document, "split-rank-0", "launch-starved").median_delta_ns == 3 * US
    gemm = part(document, "kernel-rank-0", "my_gemm")
    assert gemm.compute_delta_ns == -3 * US
    assert any("launch-starved" in statement.text for statement in document.statements)


def test_swapped_runs_give_the_negated_differences(seven):
    back = compare(run_of(longer_by=7), run_of(), rank=0)
    assert seven.run.median_delta_ns == -back.run.median_delta_ns != 0
    assert len(seven.ledgers) == len(back.ledgers) > 4
    for item, other in zip(seven.ledgers, back.ledgers, strict=True):
        assert item.id == other.id
        negated = {line.label: line.delta_ns for line in other.lines}
        assert all(line.delta_ns == -negated[line.label] for line in item.lines), item.id


@pytest.mark.parametrize(
    ("a", "b", "kind"), [(2, 5, "range"), (5, 2, "range"), (5, 9, "bootstrap")]
)
def test_other_numbers_of_steps_are_compared_a_step(a, b, kind):
    document = compare(run_of(steps=a), run_of(steps=b, longer_by=7))
    assert verdicts(document)["steps that count"] == "differs"
    assert (document.run.a_count, document.run.b_count) == (a, b)
    # Two steps, of which the first is 2 us shorter, have a median between them.
    assert document.run.median_delta_ns in (6 * US, 7 * US, 8 * US)
    assert document.run.median_interval.kind == kind
    assert document.run.median_interval.sign == 1
    assert {item.residual_ns for item in document.ledgers} == {0}


def test_the_run_is_its_slowest_rank_in_every_step():
    uneven = longer(made(), 7 * US, [1]).run()
    document = compare(run_of(), uneven)
    by_rank = {line.rank: line.median_delta_ns for line in document.steps}
    assert by_rank == {None: 7 * US, 0: 0, 1: 7 * US}
    # Shown is the one that is longest in B, or the one that was asked for.
    assert document.shown_rank == 1
    assert compare(run_of(), uneven, rank=0).shown_rank == 0


def test_ledgers_and_charges_sum_to_the_step_in_sql():
    with pair_of(run_of(), run_of(late=3, longer_by=7)) as both:
        step = both.rows("FROM pair.step_delta WHERE subject = 0")[0]
        sums = both.rows(
            "SELECT sum(delta) AS delta, sum(median_delta) AS median_delta FROM pair.part_delta "
            "WHERE subject = 0 AND ledger IN ('split', 'device') GROUP BY ledger"
        )
        assert len(sums) == 2
        for row in sums:
            assert row["delta"] == pytest.approx(step["mean_delta"], abs=1e-6)
            assert row["median_delta"] == pytest.approx(step["median_delta"], abs=1e-6)
        levels = both.rows("SELECT level, sum(delta) AS delta FROM pair.charge_delta GROUP BY 1")
        assert {row["level"] for row in levels} == {"node", "range", "class", "kernel"}
        for row in levels:
            assert row["delta"] == pytest.approx(step["mean_delta"], abs=1e-6)
        assert both.rows("SELECT max(abs(residual)) AS most FROM pair.charge_residual") == [
            {"most": 0}
        ]


def test_a_ledger_that_one_run_does_not_know_is_left_out(seven):
    names = {item.id.partition("-")[0] for item in seven.ledgers}
    assert names == {"split", "device", "class", "kernel"}
    document = compare(model(), run_of(steps=3))
    assert not any(item.id.startswith("model") for item in document.ledgers)


def test_mechanisms_where_both_runs_have_them():
    document = compare(model(), model())
    item = ledger(document, "model-rank-0")
    assert item.residual_ns == 0
    assert not item.is_provisional
    assert part(document, "bound-rank-0", "T_lb").a_ns is not None
    assert compare(model(), model(is_provisional=True)).ledgers[0].is_provisional


def test_a_rank_that_cannot_be_shown_is_refused():
    with pytest.raises(GapscopeError) as refused:
        pair_of(run_of(), run_of(), rank=5)
    assert (refused.value.slug, refused.value.exit_code) == ("no-rank", 2)
    assert refused.value.hint == "ranks that have: 0, 1"
