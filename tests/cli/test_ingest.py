"""`gapscope ingest`: what it prints, replaces and refuses; moved runs."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.hostile.captures import kineto, write_kineto


@pytest.fixture
def ingested(gapscope, sample, tmp_path):
    done = gapscope("ingest", sample, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done


def test_prints_the_run_path_and_talks_on_stderr(ingested, tmp_path):
    assert ingested.stdout == "gapscope.run\n"
    assert (tmp_path / "gapscope.run" / "run.duckdb").is_file()
    lines = ingested.stderr.splitlines()
    assert lines[0].split() == ["rank", "gpu_op", "api_call", "range", "collective", "stream_wait"]
    assert lines[2].split()[:2] == ["0", "1203"]
    assert lines[3].split()[:2] == ["1", "1203"]
    assert any(line.startswith("warn  ") for line in lines)
    assert all(len(line) <= 80 for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gapscope.run"]


def test_a_configuration_that_nobody_named_is_said_to_be_used(gapscope, sample, tmp_path):
    said = "declared configuration taken from `gapscope.toml`"
    (tmp_path / "gapscope.toml").write_text("[run]\nsequence_length = 8\n", encoding="utf-8")
    assert said in gapscope("ingest", sample, cwd=tmp_path).stderr.splitlines()
    assert said not in gapscope("ingest", sample, "-f", "-q", cwd=tmp_path).stderr
    named = gapscope("ingest", sample, "-f", "--config", "gapscope.toml", cwd=tmp_path)
    assert (named.returncode, said in named.stderr) == (0, False)


def test_of_many_ranks_the_first_are_listed(gapscope, tmp_path):
    (tmp_path / "in").mkdir()
    for rank in range(34):
        write_kineto(tmp_path / "in" / f"{rank}.json", kineto(rank))
    lines = gapscope("ingest", "in", "--workers", "1", cwd=tmp_path).stderr.splitlines()
    listed = [line.split()[0] for line in lines[2:34]]
    assert listed == [str(rank) for rank in range(32)]
    assert lines[34] == "and 2 ranks more; the run's manifest.json has all"
    manifest = json.loads((tmp_path / "gapscope.run" / "manifest.json").read_text())
    assert list(manifest["rows"]) == [str(rank) for rank in range(34)]


def test_refuses_to_replace_without_force_and_replaces_with_it(
    gapscope, sample, ingested, tmp_path
):
    refused = gapscope("ingest", sample, cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error[exists]: ")
    assert "`-f`" in refused.stderr
    again = gapscope("ingest", sample, "-f", "--json", "--workers", "1", cwd=tmp_path)
    assert again.returncode == 0
    content = json.loads(again.stdout)
    assert next(iter(content)) == "schema"
    assert content["schema"] == "gapscope.ingest/1"
    assert content["rows"]["0"]["gpu_op"] == 1203
    assert content["rows"]["1"]["gpu_op"] == 1203
    assert {row["status"] for row in content["quality"]} <= {"warn", "fail"}


def test_force_never_replaces_what_is_no_run(gapscope, sample, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("years of work", encoding="utf-8")
    done = gapscope("ingest", sample, "-o", precious, "-f")
    assert done.returncode == 2
    assert (precious / "thesis.tex").read_text(encoding="utf-8") == "years of work"


def test_quiet_keeps_results_and_warnings_only(gapscope, sample, tmp_path):
    done = gapscope("ingest", sample, "-q", "--workers", "1", cwd=tmp_path)
    assert done.stdout == "gapscope.run\n"
    lines = done.stderr.splitlines()
    assert lines
    assert all(line.startswith(("warn  ", "fail  ", "      ")) for line in lines)


def test_declared_rank_must_name_a_capture(gapscope, sample, tmp_path):
    done = gapscope("ingest", sample, "--rank", "typo.json=3", cwd=tmp_path)
    assert done.returncode == 2
    assert "rank0.json.gz" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_moved_run_is_read_where_it_stands_and_relinked_for_shells(gapscope, tiny_run, tmp_path):
    import duckdb

    moved = tmp_path / "elsewhere" / "my.run"
    shutil.copytree(tiny_run, moved)
    query = "SELECT count(*) AS n FROM v1.op"
    original = tiny_run.with_name("hidden.run")
    tiny_run.rename(original)
    try:
        done = gapscope("sql", moved, "--format", "csv", "-c", query)
        assert done.stdout == "n\n2406\n"
        with (
            duckdb.connect(str(moved / "run.duckdb"), read_only=True) as con,
            pytest.raises(duckdb.IOException),
        ):
            con.execute(query).fetchall()
        relinked = gapscope("ingest", "--relink", moved)
        assert relinked.returncode == 0, relinked.stderr
        assert relinked.stdout == f"{moved}\n"
        with duckdb.connect(str(moved / "run.duckdb"), read_only=True) as con:
            assert con.execute(query).fetchall() == [(2406,)]
    finally:
        original.rename(tiny_run)


def test_relink_takes_no_source(gapscope, sample, tiny_run):
    done = gapscope("ingest", sample, "--relink", tiny_run)
    assert done.returncode == 2
    assert done.stderr.startswith("error[usage]: ")


def test_one_file_given_as_two_ranks_is_said(gapscope, sample, tmp_path):
    one = next(sample.glob("*rank0*"))
    given = tmp_path / "given"
    given.mkdir()
    shutil.copyfile(one, given / f"first-{one.name}")
    shutil.copyfile(one, given / f"second-{one.name}")
    ranks = (f"first-{one.name}=0", f"second-{one.name}=1")
    done = gapscope("ingest", given, "--json", "--rank", ranks[0], "--rank", ranks[1], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [row for row in json.loads(done.stdout)["quality"] if "same_source" in row["check_name"]]
    assert len(said) == 1
    assert said[0]["status"] == "warn"
    assert said[0]["detail"].endswith("are one file: it stands for 2 ranks")


def test_different_captures_are_not_called_the_same(gapscope, sample, tmp_path):
    done = gapscope("ingest", sample, "--json", cwd=tmp_path)
    assert "same_source" not in done.stdout
