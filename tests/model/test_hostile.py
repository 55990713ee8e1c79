"""Captures that no model was made for: an ingest survives them, and no number is silently wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gapscope.cli.app import run as gapscope
from gapscope.ingest.pipeline import ingest

ROOT = Path(__file__).parents[2]
ANNOTATED = ROOT / "tests" / "data" / "annotated"
SAMPLE = ROOT / "gapscope" / "sample"

Document = dict[str, Any]


def _read(file: Path) -> Document:
    found: Document = json.loads(gzip.decompress(file.read_bytes()))
    return found


def _ingested(where: Path, *documents: Document, steps: str | None = None) -> Path:
    where.mkdir(exist_ok=True)
    files = []
    for number, document in enumerate(documents):
        files.append(where / f"rank{number}.json")
        files[-1].write_text(json.dumps(document))
    return ingest(files, where / "run", steps=steps, workers=1).out


def _rows(run: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as con:
        return con.execute(sql).fetchall()


def _without(document: Document, unwanted: Callable[[Document], bool]) -> Document:
    return document | {"traceEvents": [e for e in document["traceEvents"] if not unwanted(e)]}


def _steps(document: Document) -> list[Document]:
    found = [e for e in document["traceEvents"] if str(e.get("name")).startswith("ProfilerStep#")]
    return sorted((e for e in found if e["cat"] == "user_annotation"), key=lambda e: e["ts"])


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyError("secret of the capture"), "KeyError in gapscope."),
        (RecursionError(), "RecursionError in gapscope."),
        (duckdb.InternalException("INTERNAL"), "InternalException in gapscope."),
        (MemoryError(), "larger `--memory-limit`"),
        (duckdb.OutOfMemoryException("limit"), "larger `--memory-limit`"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_model_that_fails_leaves_a_run_without_it(
    error: Exception,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: Any) -> None:
        raise error

    # Halfway: rows are made by then, none may stay.
    monkeypatch.setattr("gapscope.model.ladder.ladder", broken)
    run = tmp_path / "a.run"
    assert gapscope(["ingest", str(ANNOTATED / "reshard_true.json.gz"), "-o", str(run)]) == 0
    # Narrow columns wrap what is said.
    said = " ".join(capsys.readouterr().err.split())
    assert "model_failed: the dependency model" in said
    ((name, step, status, withholds, detail),) = _rows(
        run, "SELECT check_name, step_id, status, withholds, detail FROM v1.model_check"
    )
    assert (name, step, status, withholds) == ("model_failed", None, "fail", "bound")
    assert says in detail
    assert "secret" not in detail
    assert _rows(run, "SELECT count(*) FROM v1.step_gap") == [(0,)]
    assert _rows(run, "SELECT count(*) > 0 FROM v1.step_budget") == [(True,)]
    assert gapscope(["what-if", str(run)]) == 3
    assert "no-ladder" in capsys.readouterr().err
    assert gapscope(["report", str(run), "-o", str(tmp_path / "r.html")]) == 0
    assert "the dependency model" in (tmp_path / "r.html").read_text()
    assert gapscope(["rules", "fsdp2", "--run", str(run)]) == 0


def test_a_full_disk_is_not_the_models_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gapscope.model.ladder.ladder", full)
    run = tmp_path / "a.run"
    assert gapscope(["ingest", str(ANNOTATED / "reshard_true.json.gz"), "-o", str(run)]) == 2
    assert "cannot-write" in capsys.readouterr().err
    assert not run.exists()


# ------------------------------------------------------------------ ranks that do not fit


def test_ranks_that_began_at_different_steps_are_not_put_together(tmp_path: Path) -> None:
    zero, one = _read(SAMPLE / "rank0.json.gz"), _read(SAMPLE / "rank1.json.gz")
    last, first = _steps(zero)[-1]["name"], _steps(one)[0]["name"]
    run = _ingested(
        tmp_path,
        _without(zero, lambda e: e.get("name") == last),
        _without(one, lambda e: e.get("name") == first),
    )
    # The first step of one rank is the second of the other: by number they look alike.
    details = _rows(run, "SELECT detail FROM v1.model_check WHERE check_name = 'program'")
    assert [detail for (detail,) in details] == [
        "ranks began to capture at different steps: their labels number this one 2, 3",
        "ranks began to capture at different steps: their labels number this one 3, 4",
    ]
    assert _rows(run, "SELECT count(*) FROM v1.step_gap") == [(0,)]
    # The clocks are not bent by a step to make ends meet.
    assert _rows(run, "SELECT DISTINCT method FROM v1.rank_clock") == [("capture clock",)]


def test_a_lost_collective_spoils_its_own_step_and_no_other(tmp_path: Path) -> None:
    zero, one = _read(SAMPLE / "rank0.json.gz"), _read(SAMPLE / "rank1.json.gz")
    second = _steps(one)[1]["ts"]
    kernels = [e for e in one["traceEvents"] if e.get("cat") == "kernel" and "nccl" in e["name"]]
    lost = min((e for e in kernels if e["ts"] > second), key=lambda e: e["ts"])
    run = _ingested(tmp_path, zero, _without(one, lambda e: e is lost))
    assert _rows(
        run, "SELECT step_id, detail FROM v1.model_check WHERE check_name = 'program'"
    ) == [(1, "ranks ran different programs")]
    assert _rows(run, "SELECT DISTINCT step_id FROM v1.step_gap ORDER BY ALL") == [(0,), (2,)]
    # Gathers of equal size, paired off by one, would put the clocks in doubt by a whole block.
    ((residual_ns,),) = _rows(run, "SELECT max(residual_ns) FROM v1.rank_clock")
    assert residual_ns < 500_000
    _identities(run)


def test_captures_of_two_jobs_get_no_bound(tmp_path: Path) -> None:
    one = _read(ANNOTATED / "reshard_true.json.gz")
    # The same program, and all messages of the same size.
    other = _read(ANNOTATED / "checkpointing.json.gz")
    other["distributedInfo"]["rank"] = 1
    run = _ingested(tmp_path, one, other)
    ((status, withholds),) = _rows(
        run, "SELECT status, withholds FROM v1.model_check WHERE check_name = 'clock_residual'"
    )
    assert (status, withholds) == ("fail", "bound")
    assert _rows(run, "SELECT count(*) FROM v1.step_gap") == [(0,)]


def test_a_rank_without_a_clock_stays_out_and_is_named(tmp_path: Path) -> None:
    ranks = [_read(SAMPLE / f"rank{rank}.json.gz") for rank in (0, 1, 1)]
    for rank, document in enumerate(ranks):
        document["distributedInfo"] |= {"rank": rank, "world_size": 3}
    alone = _without(ranks[2], lambda e: e.get("cat") == "kernel" and "nccl" in e["name"])
    del alone["baseTimeNanoseconds"]
    run = _ingested(tmp_path, *ranks[:2], alone)
    ((status, detail),) = _rows(
        run, "SELECT status, detail FROM v1.model_check WHERE check_name = 'rank_clock'"
    )
    assert status == "warn"
    assert "ranks 2 to the others' clocks" in detail
    assert _rows(run, "SELECT DISTINCT rank FROM v1.step_gap ORDER BY ALL") == [(0,), (1,)]
    _identities(run)


def test_steps_from_different_anchors_are_not_put_together(tmp_path: Path) -> None:
    one = _without(
        _read(SAMPLE / "rank1.json.gz"),
        lambda e: str(e.get("name")).startswith(("ProfilerStep#", "Optimizer.")),
    )
    run = _ingested(tmp_path, _read(SAMPLE / "rank0.json.gz"), one)
    said = {
        row[0]
        for row in _rows(run, "SELECT detail FROM v1.model_check WHERE check_name = 'program'")
    }
    assert "ranks take their steps from different anchors" in said
    assert _rows(run, "SELECT count(*) FROM v1.step_gap") == [(0,)]


def test_findings_about_one_program_name_its_steps_where_there_are_two(tmp_path: Path) -> None:
    capture = _read(ANNOTATED / "accumulation.json.gz")
    events = [e for e in capture["traceEvents"] if e not in _steps(capture)]
    for step in _steps(capture):
        # Each microbatch in a step of its own; only the second one reduces.
        second = max(
            e["ts"]
            for e in events
            if e.get("name") == "forward"
            and e["cat"] == "user_annotation"
            and step["ts"] <= e["ts"] < step["ts"] + step["dur"]
        )
        number = 2 * int(step["name"].rpartition("#")[2])
        end = step["ts"] + step["dur"]
        events.append(step | {"name": f"ProfilerStep#{number}", "dur": second - step["ts"] - 1})
        events.append(
            step | {"name": f"ProfilerStep#{number + 1}", "ts": second - 1, "dur": end - second + 1}
        )
    # Named, for the optimizer steps only every other time, and two anchors that disagree end the matter.
    run = _ingested(tmp_path, capture | {"traceEvents": events}, steps=r"ProfilerStep#\d+")
    checks = _rows(
        run, "SELECT step_id FROM v1.model_check WHERE check_name = 'rule_pack' ORDER BY ALL"
    )
    assert checks == [(0,), (1,), (2,), (3,)]
    _identities(run)


# ------------------------------------------------------------------ names


def _identities(run: Path) -> None:
    """Pieces sum to the compute-absent time, classes to the gap, and nothing is empty."""
    assert (
        _rows(
            run,
            "SELECT g.rank, g.step_id FROM v1.step_gap AS g "
            "INNER JOIN v1.step_budget AS b ON g.rank = b.rank AND g.step_id = b.step_id "
            "INNER JOIN (SELECT rank, step_id, sum(end_ns - start_ns) AS pieces_ns "
            "    FROM v1.gap_piece GROUP BY rank, step_id) AS p "
            "ON g.rank = p.rank AND g.step_id = p.step_id "
            "WHERE b.projection = 'device' AND (p.pieces_ns <> b.compute_absent_ns "
            "    OR g.gap_ns <> g.r1_ns + g.r2_ns + g.r3_ns + g.floor_ns + g.unresolved_ns "
            "        + g.carried_ns)",
        )
        == []
    )
    assert _rows(run, "SELECT check_name FROM v1.model_check WHERE isnan(measured)") == []
    twice = "SELECT check_name FROM v1.model_check GROUP BY check_name, step_id HAVING count(*) > 1"
    assert _rows(run, twice) == []
    assert _rows(run, "SELECT audit_name FROM v1.audit_result WHERE failed_count > 0") == []


def _renamed(document: Document, rename: Callable[[str], str]) -> Document:
    events = [
        e | {"name": rename(e["name"])} if str(e.get("name")).startswith("FSDP::") else e
        for e in document["traceEvents"]
    ]
    return document | {"traceEvents": events}


@pytest.mark.parametrize(
    "name",
    ["two\nlines.", "for it (and) [pg=1].", "<b>\"'.", "x" * 5000],
    ids=["lines", "words", "markup", "long"],
)
def test_a_module_may_have_any_name(name: str, tmp_path: Path) -> None:
    capture = _read(ANNOTATED / "reshard_true.json.gz")
    plain = _ingested(tmp_path / "plain", capture)
    odd = _ingested(
        tmp_path / "odd", _renamed(capture, lambda label: label.replace("blocks.", name))
    )
    numbers = "SELECT * FROM v1.step_gap ORDER BY ALL"
    assert _rows(odd, numbers) == _rows(plain, numbers) != []
    _identities(odd)
