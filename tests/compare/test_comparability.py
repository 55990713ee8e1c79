"""Which runs may be compared, and what each difference between them means."""

from __future__ import annotations

import json

from .pairs import US, Maker, compare, compare_makers, made, part, run_of, verdicts


def test_differences_that_may_make_it_longer_are_said_to():
    other = made()
    for statement in (
        "UPDATE v1.rank SET device_name = 'H100', source_format = 'kineto', device_uuid = 'GPU-0'",
        "INSERT INTO v1.metric_sample (rank, value) VALUES (0, 1.0)",
    ):
        other.con.execute(statement)
    document = compare(run_of(), other.run())
    assert document.is_comparable
    assert document.is_confounded
    confounding = {check.item for check in document.checks if check.is_confounding}
    assert confounding == {"GPU", "source", "ranks that share a GPU", "metric sampling"}
    assert {verdicts(document)[item] for item in confounding} == {"limits"}
    assert "No difference is the program's alone: " in document.headline.text
    # Tools spell the names of kernels in their own ways.
    assert verdicts(document).get("kernel classes") is None
    assert document.volumes is None
    assert not any(item.id.startswith("kernel") for item in document.ledgers)


def test_differences_that_may_be_the_change_are_only_said():
    a, b = made(), made()
    for run, value in ((a, "Ring"), (b, "Tree")):
        run.con.execute(f"UPDATE v1.rank SET cuda_driver = {len(value)}, nccl_version = '{value}'")
        run.con.execute(f"INSERT INTO v1.environment VALUES (0, 'NCCL_ALGO', '{value}')")
    # Which process it was says nothing of how it ran; what only one side sets does.
    b.con.execute(
        "INSERT INTO v1.environment VALUES (0, 'RANK', '0'), (0, 'NCCL_NVLS_ENABLE', '0')"
    )
    b.con.execute("UPDATE v1.rank SET part = 'stage ' || rank")
    b.con.execute("DELETE FROM v1.event_record")
    b.con.execute("UPDATE v1.rank SET cuda_runtime = 13")
    document = compare_makers(a, b)
    found = verdicts(document)
    assert not document.is_confounded
    assert found["NCCL_ALGO"] == found["NCCL"] == found["NCCL_NVLS_ENABLE"] == "differs"
    assert found["parts"] == found["event edges"] == "limits"
    assert found["CUDA runtime"] == "unknown"
    assert "RANK" not in {check.item for check in document.checks}
    said = " ".join(statement.text for statement in document.statements)
    assert "NCCL_ALGO: A Ring, B Tree" in said
    assert "NCCL_NVLS_ENABLE: A not set, B 0" in said
    assert "how blocking and stalled divide" in said


def test_one_run_read_twice_is_said_to_be_one():
    a, b, c = made(), made(), made()
    for run, seed in ((a, "x"), (b, "x"), (c, "y")):
        run.con.execute(f"UPDATE v1.rank SET source_digest = '{seed}' || rank")
    one, two = a.run(), b.run()
    document = compare(one, two)
    check = next(check for check in document.checks if check.item == "captures")
    assert check.verdict == "same"
    assert check.a == check.b
    assert check.a.startswith("2 of digest ")
    assert document.statements[0].text.startswith("A and B are the same run: ")
    # Two runs have captures of their own, and some do not say which.
    unknown = made()
    unknown.con.execute("UPDATE v1.rank SET source_digest = NULL WHERE rank = 1")
    unsaid = unknown.run()
    for other in (compare(one, c.run()), compare(unsaid, unsaid)):
        assert "captures" not in {check.item for check in other.checks}
        assert "same run" not in " ".join(item.text for item in other.statements)


def test_another_world_size_is_other_work():
    document = compare(run_of(), run_of(ranks=3))
    assert not document.is_comparable
    assert document.ledgers == document.steps == ()
    assert verdicts(document)["world size"] == "forbids"
    assert document.headline.text.startswith("Not comparable. world size: A 2, B 3 (")
    assert [claim.id for claim in document.claims] == ["comparable"]


def test_a_rank_that_only_one_run_has_is_left_out():
    missing = made(ranks=1)
    missing.con.execute("UPDATE v1.rank SET world_size = 2")
    document = compare(run_of(), missing.run())
    assert document.is_comparable
    assert verdicts(document)["ranks captured"] == "limits"
    assert [line.rank for line in document.steps] == [None, 0]


def test_no_rank_in_common_forbids():
    other = made(ranks=1)
    for table in ("rank", "gpu_op", "api_call", "range", "event_record", "stream_wait", "name"):
        other.con.execute(f"UPDATE v1.{table} SET rank = 7")
    other.con.execute("UPDATE v1.rank SET world_size = 2")
    document = compare(run_of(), other.run())
    assert verdicts(document)["ranks captured"] == "forbids"
    assert not document.is_comparable


def test_other_collectives_are_other_work_unless_the_same_work_is_declared():
    def gathers(name: str, batch: int | None):
        run = made()
        run.con.execute(
            f"UPDATE v1.name SET name = 'ncclDevKernel_{name}_RING_LL' WHERE name LIKE 'nccl%'"
        )
        if batch is not None:
            table = {"model": "llama", "sequence_length": 4096, "global_batch": batch}
            run.add("run_option", name="run", value=json.dumps(table))
        return run

    document = compare_makers(gathers("AllGather", None), gathers("AllReduce", None))
    assert verdicts(document)["collectives a unit of work"] == "forbids"
    document = compare_makers(gathers("AllGather", 8), gathers("AllReduce", 8))
    assert verdicts(document)["collectives a unit of work"] == "limits"
    assert document.is_comparable
    document = compare_makers(gathers("AllGather", 8), gathers("AllGather", 16))
    assert verdicts(document)["run.global_batch"] == "forbids"


def test_equal_kernels_on_other_grids_are_another_batch():
    def sized(blocks: int):
        run = made()
        run.con.execute(f"UPDATE v1.gpu_op SET grid_x = {blocks}, grid_y = 2, grid_z = 1")
        return run.run()

    small = sized(8)
    assert "sizes of kernels" not in verdicts(compare(small, sized(8)))
    document = compare(small, sized(16))
    assert verdicts(document)["sizes of kernels"] == "forbids"
    (check,) = [one for one in document.checks if one.item == "sizes of kernels"]
    assert (check.a, check.b) == ("16 blocks of my_gemm", "32 blocks of my_gemm")


def test_other_kernels_are_said_and_mostly_others_forbid():
    def renamed(names: str):
        run = made()
        run.con.execute(f"UPDATE v1.name SET name = 'new_' || name WHERE name IN ({names})")
        return run.run()

    # 26 of 66 us.
    document = compare(run_of(), renamed("'other_gemm'"))
    assert verdicts(document)["kernels"] == "differs"
    assert document.is_comparable
    assert {line.label for line in document.ledgers[3].lines} >= {"other_gemm", "new_other_gemm"}
    document = compare(run_of(), renamed("'other_gemm', 'my_gemm'"))
    assert verdicts(document)["kernels"] == "forbids"


def _capture(*, steps: int):
    """A capture without steps: gemms, further apart every time so that nothing recurs."""
    run = Maker()
    for rank in (0, 1):
        run.rank(rank)
        at = 0
        for op in range(steps):
            run.launch(rank, op, "my_gemm", 7, (at, at + 10), (at + US, at + 41 * US))
            at += 50 * US + op
    return run


def test_captures_without_steps_are_compared_by_launches():
    document = compare_makers(_capture(steps=40), _capture(steps=60))
    assert document.unit == "launch of `my_gemm`"
    assert document.is_comparable
    assert verdicts(document)["steps that count"] == "limits"
    # Half as much again took half as long again.
    assert abs(document.run.median_delta_ns) < US
    assert document.run.median_interval.kind == "edges"
    assert "not resolved" in document.headline.text
    assert {item.residual_ns for item in document.ledgers} == {0}
    assert part(document, "split-rank-0", "compute").delta_ns == 0


def test_captures_of_equal_length_and_other_work_are_never_neutral():
    b = _capture(steps=40)
    # As long a window, in which every second launch is missing.
    b.con.execute("DELETE FROM v1.gpu_op WHERE op_id % 2 = 1 AND op_id <> 39")
    document = compare_makers(_capture(steps=40), b)
    assert 0.8 < document.run.median_delta_share < 1
    assert document.run.median_interval.sign == 1


def test_captures_in_which_nothing_recurs_have_no_unit():
    a, b = _capture(steps=40), _capture(steps=40)
    b.con.execute("UPDATE v1.name SET name = 'other_gemm' WHERE name = 'my_gemm'")
    document = compare_makers(a, b)
    assert not document.is_comparable
    assert verdicts(document)["unit of work"] == "forbids"
