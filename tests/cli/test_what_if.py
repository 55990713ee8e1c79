"""`gapscope what-if` as it is typed: the ladder, one rung, and why there is none."""

from __future__ import annotations

import json
import shutil

import duckdb
import pytest

from gapscope.cli import app
from gapscope.model.ladder import RUNGS


@pytest.fixture(scope="module")
def answer(gapscope, tiny_run):
    done = gapscope("what-if", tiny_run, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_text_fits_80_columns_and_starts_with_the_replay(gapscope, tiny_run):
    done = gapscope("what-if", tiny_run)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("replay  of the run as executed: 196.")
    firsts = [line.split()[0] for line in lines if line.strip()]
    assert [name for name in firsts if name in RUNGS] == [*RUNGS[1:], "R1", "R2", "R3"]
    assert "T_lb 155." in done.stdout


def test_every_rung_with_what_it_saves(answer):
    assert answer["schema"] == "gapscope.what-if/1"
    assert answer["step_ids"] == [0, 1, 2]
    assert answer["rank_count"] == 2
    assert abs(answer["replay"]["worst_share"]) <= answer["replay"]["allowed_share"] == 0.02
    rungs = {row["removed"]: row for row in answer["rungs"]}
    assert tuple(rungs) == RUNGS
    assert rungs[""]["saved_ns"] == 0
    assert 155_000_000 < rungs["R2"]["step_ns"] < 160_000_000
    assert rungs["R2"]["stretched_ns"] > rungs["R2"]["step_ns"]
    assert answer["t_lb_ns"] <= rungs["R1+R2+R3"]["step_min_ns"]
    assert all(row["step_min_ns"] <= row["step_ns"] <= row["step_max_ns"] for row in rungs.values())


def test_a_step_is_as_long_as_on_its_slowest_rank(answer, tiny_run):
    with duckdb.connect(str(tiny_run / "run.duckdb"), read_only=True) as con:
        longest = con.execute(
            "SELECT max(step_ns) FROM v1.what_if WHERE removed = 'R1' GROUP BY step_id ORDER BY 1"
        ).fetchall()
    row = answer["rungs"][1]
    lengths = [step for (step,) in longest]
    assert (row["step_min_ns"], row["step_max_ns"]) == (lengths[0], lengths[-1])
    assert row["step_ns"] == pytest.approx(sum(lengths) / len(lengths), abs=1)


def test_shares_add_up_to_the_last_rung(answer):
    total = answer["rungs"][-1]["saved_ns"]
    shares = {row["mechanism"]: row for row in answer["shares"]}
    # Means over steps of what adds up in each step.
    assert sum(row["share_ns"] for row in shares.values()) == pytest.approx(total, abs=3)
    assert max(shares, key=lambda name: shares[name]["share_ns"]) == "R2"
    assert all(row["least_ns"] <= row["share_ns"] <= row["most_ns"] for row in shares.values())


def test_changes_are_ordered_by_what_they_save(answer):
    saved = [row["saved_ns"] for row in answer["changes"]]
    assert saved == sorted(saved, reverse=True)
    assert answer["changes"][0]["change"] == "more hardware queues"


@pytest.mark.parametrize("typed", ["R3,R1", "r1, r3", "R1+R3", "R1,R3,R1"])
def test_without_in_any_order_and_case(gapscope, tiny_run, answer, typed):
    content = json.loads(gapscope("what-if", tiny_run, "--without", typed, "--json").stdout)
    wanted = [row for row in answer["rungs"] if row["removed"] in ("", "R1+R3")]
    assert content["rungs"] == wanted
    assert "changes" not in content
    text = gapscope("what-if", tiny_run, "--without", typed).stdout
    assert "R1+R3  " in text
    assert "R2" not in text


@pytest.mark.parametrize("typed", ["R4", "", "R1,,R2", "queue"])
def test_without_anything_else_is_a_usage_error(gapscope, tmp_path, typed):
    done = gapscope("what-if", "--without", typed, cwd=tmp_path)
    assert done.returncode == 2
    first, hint = done.stderr.splitlines()
    assert first.startswith("error[usage]: invalid value for '--without': ")
    assert first.endswith("(mechanisms: R1, R2, R3)")
    assert "R2 queue serialization" in hint


def test_usage_errors_name_the_command_as_typed(gapscope, tmp_path):
    done = gapscope("what-if", "--without", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "  hint: `gapscope what-if --help`"


# Check, what it withholds, what a user is told to do.
REFUSALS = [
    ("replay_error", "verdict", "CUDA_DEVICE_MAX_CONNECTIONS"),
    ("unresolved", "verdict", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
    ("blocking_sync", "ladder", ".item()"),
    ("run_ahead", "ladder", "torch.cuda.synchronize()"),
    ("rule_pack", "bound", "gapscope rules"),
    ("rule_violations", "bound", "gapscope rules fsdp2 --run"),
    ("bound_order", "bound", "FROM model_check"),
]


@pytest.mark.parametrize(("check", "withholds", "advice"), REFUSALS)
def test_a_refused_ladder_says_why_and_what_to_do(
    tiny_run, tmp_path, capsys, check, withholds, advice
):
    refused = tmp_path / "refused.run"
    shutil.copytree(tiny_run, refused)
    with duckdb.connect(str(refused / "run.duckdb")) as con:
        con.execute("DELETE FROM v1.what_if")
        con.execute("DELETE FROM v1.model_check WHERE check_name = ?", [check])
        con.executemany(
            "INSERT INTO v1.model_check VALUES (?, ?, 'fail', ?, 0.02, ?, ?)",
            [(check, 1, 0.1, "a mild case", withholds), (check, 2, -0.3, "a bad case", withholds)],
        )
    assert app.run(["what-if", str(refused)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    first, hint = said.err.splitlines()
    assert first.startswith("error[no-ladder]: no what-if for `")
    assert "a bad case (2 steps, this is the worst)" in first
    assert "mild" not in first
    assert advice in hint
    assert app.run(["what-if", str(refused), "--json"]) == 3
    assert [one["check_name"] for one in json.loads(capsys.readouterr().out)["refused"]] == [check]


def test_steps_without_a_ladder_are_left_out_and_named(gapscope, tiny_run, tmp_path):
    partly = tmp_path / "partly.run"
    shutil.copytree(tiny_run, partly)
    with duckdb.connect(str(partly / "run.duckdb")) as con:
        con.execute("DELETE FROM v1.what_if WHERE step_id = 1")
        con.execute("UPDATE v1.step_gap SET is_boundary = true WHERE step_id = 0")
        con.execute(
            "INSERT INTO v1.model_check VALUES "
            "('run_ahead', 1, 'warn', 0.2, 0, '7 of 9 ops were issued early', 'ladder')"
        )
    content = json.loads(gapscope("what-if", partly, "--json").stdout)
    assert content["step_ids"] == [2]
    done = gapscope("what-if", partly)
    assert done.returncode == 0, done.stderr
    assert "left out  run_ahead: 7 of 9 ops were issued early" in done.stdout
    with duckdb.connect(str(partly / "run.duckdb")) as con:
        con.execute("UPDATE v1.step_gap SET is_boundary = true")
        con.execute("DELETE FROM v1.model_check WHERE check_name = 'run_ahead'")
    none = gapscope("what-if", partly)
    assert none.returncode == 3
    assert "only boundary steps" in none.stderr


def test_a_run_of_an_older_version_is_told_so(gapscope, tiny_run, tmp_path):
    old = tmp_path / "old.run"
    shutil.copytree(tiny_run, old)
    with duckdb.connect(str(old / "run.duckdb")) as con:
        con.execute("DROP VIEW main.what_if_step")
        con.execute("DROP VIEW v1.what_if_step")
    done = gapscope("what-if", old)
    assert done.returncode == 2
    assert done.stderr.startswith("error[no-model]: ")
    assert "`gapscope ingest DIRECTORY -f`" in done.stderr
