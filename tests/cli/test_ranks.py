"""`gapscope ranks` as it is typed, and the parts that `gapscope.toml` declares."""

from __future__ import annotations

import csv
import io
import json
import shutil

import duckdb
import pytest

from gapscope.config import parts
from gapscope.errors import GapscopeError


def test_it_fits_eighty_columns_and_says_what_it_knows(gapscope, tiny_run):
    done = gapscope("ranks", tiny_run)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "2 of 2 captured" in done.stdout
    assert "(p95 of matched ends; largest on rank " in " ".join(done.stdout.split())
    assert "Look at these ranks:" in done.stdout


@pytest.mark.parametrize("columns", ["60", "80"])
def test_no_column_is_lost_however_narrow(gapscope, tiny_run, columns):
    done = gapscope("ranks", tiny_run, COLUMNS=columns)
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert "…" not in done.stdout
    last = done.stdout[done.stdout.index("\nrank  min ms") :]
    heads = [line for line in last.splitlines() if line.startswith("rank  ")]
    assert len(heads) > 1
    for name in ("compute", "comm", "copies", "laggard", "early start", "host", "collectives"):
        assert any(f"  {name}" in head for head in heads), name
    said = " ".join(done.stdout.split())
    assert "those of a line need not be of one step, nor sum to it" in said


def test_json_is_one_document_with_every_rank(gapscope, tiny_run):
    done = gapscope("ranks", tiny_run, "--json")
    content = json.loads(done.stdout)
    assert list(content) == [
        *("schema", "run", "scope", "limits", "parts", "representatives", "bandwidth", "ranks")
    ]
    assert content["schema"] == "gapscope.ranks/1"
    assert [row["rank"] for row in content["ranks"]] == [0, 1]
    assert content["parts"][0]["verdict"] in ("none", "not resolved", "repeated", "rotating")
    assert content["parts"][0]["says"].endswith(".")


def test_csv_is_the_view(gapscope, tiny_run):
    done = gapscope("ranks", tiny_run, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["rank"] for row in rows] == ["0", "1"]
    assert int(rows[0]["step_min_ns"]) <= int(rows[0]["step_ns"]) <= int(rows[0]["step_max_ns"])
    refused = gapscope("ranks", tiny_run, "--format", "csv", "--json")
    assert refused.returncode == 2
    assert "error[usage]" in refused.stderr


def test_a_subset_of_the_ranks_limits_the_verdict(gapscope, tiny_run, tmp_path):
    copy = tmp_path / "part.run"
    shutil.copytree(tiny_run, copy)
    with duckdb.connect(str(copy / "run.duckdb")) as con:
        con.execute("UPDATE v1.rank SET world_size = 16")
        con.execute("UPDATE v1.analysis_contract SET value = '16' WHERE item = 'world_size'")
    done = gapscope("ranks", copy)
    said = " ".join(done.stdout.split())
    assert "2 of 16 captured" in said
    assert "2 of 16 ranks were captured, and verdicts cover these only" in said


def test_many_ranks_are_listed_only_when_asked(gapscope, tiny_run, tmp_path):
    copy = tmp_path / "many.run"
    shutil.copytree(tiny_run, copy)
    with duckdb.connect(str(copy / "run.duckdb")) as con:
        con.execute(
            "INSERT INTO v1.rank BY NAME SELECT r.* REPLACE (k.range AS rank) "
            "FROM v1.rank AS r, range(2, 40) AS k WHERE r.rank = 0"
        )
    short, whole = gapscope("ranks", copy), gapscope("ranks", copy, "--all")
    assert "--all` lists 40 ranks" in short.stdout
    assert len(whole.stdout.splitlines()) - len(short.stdout.splitlines()) >= 40


def test_names_do_not_steer_the_terminal(gapscope, tiny_run, tmp_path):
    copy = tmp_path / "steering.run"
    shutil.copytree(tiny_run, copy)
    with duckdb.connect(str(copy / "run.duckdb")) as con:
        con.execute("UPDATE v1.rank SET device_name = 'a\x1b[2J', hostname = 'b\x9bc\u202e'")
        con.execute("UPDATE v1.rank_part SET part = 'd\x07\x1b]0;e'")
    done = gapscope("ranks", copy)
    assert done.returncode == 0, done.stderr
    assert r"(a\x1b[2J)" in done.stdout
    assert r"d\x07\x1b]0;e: " in done.stdout
    assert not {"\x1b", "\x9b", "\x07", "\u202e"}.intersection(done.stdout)


def test_without_steps_that_count_it_is_inconclusive(gapscope, tiny_run, tmp_path):
    copy = tmp_path / "boundary.run"
    shutil.copytree(tiny_run, copy)
    with duckdb.connect(str(copy / "run.duckdb")) as con:
        con.execute("UPDATE v1.step_budget SET is_boundary = TRUE")
    done = gapscope("ranks", copy)
    assert done.returncode == 3
    assert "error[no-steps]" in done.stderr


def test_declared_parts_go_before_detected_ones(gapscope, sample, tmp_path):
    config = tmp_path / "gapscope.toml"
    config.write_text('[parts]\nlast = "1"\nfirst = "0, 2-5"\n', encoding="utf-8")
    done = gapscope("ingest", sample, "-o", tmp_path / "run", "--config", config, "-q")
    assert done.returncode == 0, done.stderr
    content = json.loads(gapscope("ranks", tmp_path / "run", "--json").stdout)
    assert [(row["part"], row["part_source"]) for row in content["ranks"]] == [
        ("first", "declared"),
        ("last", "declared"),
    ]
    assert {row["verdict"] for row in content["parts"]} == {"not resolved"}
    assert "one rank: nothing to compare it with" in content["parts"][0]["says"]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"a": "0-3", "b": "3,7"}, "rank 3 is in `a` and `b`"),
        ({"a": "5-2"}, "is '5-2'"),
        ({"a": "all"}, "is 'all'"),
        ({"a": 3}, "is 3"),
        ({"a": "\u0663"}, "is '\u0663'"),
        ({"a": "\u00a00-3"}, "must name ranks"),
        ({" ": "0-3"}, "a part has no name"),
    ],
)
def test_parts_that_mean_nothing_are_refused(table, said):
    with pytest.raises(GapscopeError, match="parts") as refused:
        parts.check(table, "gapscope.toml")
    assert refused.value.slug == "bad-config"
    assert said in f"{refused.value.message} {refused.value.hint}"
