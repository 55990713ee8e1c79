"""`gapscope compare` and `gapscope check` as they are typed."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import duckdb
import pytest

from gapscope.compare.policy import EXAMPLE


@pytest.fixture(scope="module")
def slower(tiny_run, tmp_path_factory):
    """The sample with every step of its budget 10 ms longer, without compute and without launches."""
    out = tmp_path_factory.mktemp("slower") / "slower.run"
    shutil.copytree(tiny_run, out)
    with duckdb.connect(str(out / "run.duckdb")) as con:
        con.execute(
            "UPDATE v1.step_budget SET step_ns = step_ns + 10000000, idle_ns = idle_ns + 10000000, "
            "compute_absent_ns = compute_absent_ns + 10000000, "
            "launch_starved_ns = launch_starved_ns + 10000000 WHERE projection = 'device'"
        )
    return out


@pytest.fixture(scope="module")
def other_world(tiny_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("other") / "other.run"
    shutil.copytree(tiny_run, out)
    with duckdb.connect(str(out / "run.duckdb")) as con:
        con.execute("UPDATE v1.rank SET world_size = 4")
    return out


def test_text_fits_80_columns_and_begins_with_the_verdict(gapscope, tiny_run, slower):
    done = gapscope("compare", tiny_run, slower)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == [f"A  {tiny_run.name}", "B  slower.run"]
    assert lines[3].startswith("A step of B is 10.00 ms (5.1 %) longer: ")
    assert any(line.startswith("  launch-starved ") and "+10.00" in line for line in lines)
    # Its kernels are where they were: what is charged to none of them is the residual.
    at = next(i for i, line in enumerate(lines) if line.startswith("By node of the program"))
    residual = next(line for line in lines[at:] if line.startswith("  residual"))
    assert residual.split() == ["residual", "+10.00"]
    assert "residual of 10.00 ms" in " ".join(done.stdout.split())


def test_a_run_against_itself(gapscope, tiny_run):
    content = json.loads(gapscope("compare", tiny_run, tiny_run, "--json").stdout)
    assert content["schema"] == "gapscope.compare/1"
    assert content["is_comparable"] is True
    assert all(line["delta_ns"] == 0 for item in content["ledgers"] for line in item["lines"])
    assert (content["a"], content["b"]) == (tiny_run.name, tiny_run.name)
    assert content["statements"][0]["text"].startswith("A and B are the same run: ")
    alike = {check["item"] for check in content["checks"] if check["verdict"] == "same"}
    assert "captures" in alike


def test_runs_of_one_name_are_told_apart_by_their_directories(gapscope, tiny_run, tmp_path):
    other = tmp_path / "other" / tiny_run.name
    shutil.copytree(tiny_run, other)
    content = json.loads(gapscope("compare", tiny_run, other, "--json").stdout)
    # No more of the path is said than tells them apart.
    assert content["b"] == f"other/{tiny_run.name}"
    assert content["a"].count("/") == 1


@pytest.mark.parametrize("format_", ["table", "json", "csv", "md", "html"])
def test_what_may_not_be_compared_exits_3_in_every_form(gapscope, tiny_run, other_world, format_):
    done = gapscope("compare", tiny_run, other_world, "--format", format_)
    assert done.returncode == 3
    first, hint = done.stderr.splitlines()
    assert first.startswith("error[not-comparable]: ")
    assert first.endswith("may not be compared: world size")
    assert hint.startswith("  hint: ")
    if format_ == "csv":
        assert len(done.stdout.splitlines()) == 1
    else:
        assert "world size" in done.stdout
        assert "longer" not in done.stdout


def test_csv_is_a_table(gapscope, tiny_run, slower):
    rows = list(
        csv.DictReader(io.StringIO(gapscope("compare", tiny_run, slower, "--format", "csv").stdout))
    )
    starved = [row for row in rows if row["part"] == "launch-starved" and row["rank"] == "0"]
    run = [row for row in rows if row["ledger"] == "step" and row["rank"] == ""]
    assert float(run[0]["delta_ns"]) == 10_000_000
    assert all(float(row["delta_ns"]) == 10_000_000 for row in starved)


@pytest.mark.parametrize("suffix", ["html", "md", "json", "csv", "txt", "duckdb"])
def test_a_file_by_its_suffix_and_never_over_another(gapscope, tiny_run, tmp_path, suffix):
    out = tmp_path / f"compare.{suffix}"
    done = gapscope("compare", tiny_run, tiny_run, "-o", out)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{out}\n"
    assert out.stat().st_size > 1000
    again = gapscope("compare", tiny_run, tiny_run, "-o", out)
    assert again.returncode == 2
    assert again.stderr.startswith("error[exists]: ")
    assert gapscope("compare", tiny_run, tiny_run, "-o", out, "-f").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    if suffix == "duckdb":
        with duckdb.connect(str(out), read_only=True) as con:
            assert con.execute(
                "SELECT max(abs(residual)) FROM pair.ledger_residual"
            ).fetchone() == (0,)
            comment = con.execute(
                "SELECT comment FROM duckdb_views() WHERE view_name = 'step_delta'"
            ).fetchone()
            assert comment[0].startswith("The step of each rank")


def test_rank_by_number_or_an_error(gapscope, tiny_run):
    content = json.loads(gapscope("compare", tiny_run, tiny_run, "--rank", "0", "--json").stdout)
    assert content["shown_rank"] == 0
    refused = gapscope("compare", tiny_run, tiny_run, "--rank", "9")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error[no-rank]: rank 9 ")


def test_a_run_of_an_older_gapscope_is_refused(gapscope, tiny_run, tmp_path):
    old = tmp_path / "old.run"
    shutil.copytree(tiny_run, old)
    with duckdb.connect(str(old / "run.duckdb")) as con:
        con.execute("DROP VIEW main.step_number")
        con.execute("DROP VIEW v1.step_number")
    for runs in ((old, tiny_run), (tiny_run, old)):
        done = gapscope("compare", *runs)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("error[run-too-old]: ")
        assert "v1.step_number" in done.stderr


def test_a_newer_schema_is_refused(gapscope, tiny_run, tmp_path):
    new = tmp_path / "new.run"
    shutil.copytree(tiny_run, new)
    manifest = json.loads((new / "manifest.json").read_text(encoding="utf-8"))
    text = json.dumps({**manifest, "schema_version": manifest["schema_version"] + 1})
    (new / "manifest.json").write_text(text, encoding="utf-8")
    done = gapscope("compare", tiny_run, new)
    assert (done.returncode, done.stderr[:19]) == (2, "error[run-too-new]:")


@pytest.fixture
def policy(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text(EXAMPLE, encoding="utf-8")
    return file


def test_check_says_what_it_needs(gapscope):
    assert "Rules and limits, as TOML; required." in gapscope("check", "--help").stdout


def test_check_passes_says_each_rule_and_exits_0(gapscope, tiny_run, policy):
    done = gapscope("check", tiny_run, "--policy", policy, "--baseline", tiny_run)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 80
    rules = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert len(rules) == 6
    assert all(line.startswith("pass     ") for line in rules)


def test_check_fails_on_a_regression_and_exits_1(gapscope, tiny_run, slower, policy):
    done = gapscope("check", slower, "--policy", policy, "--baseline", tiny_run, "--json")
    assert done.returncode == 1
    content = json.loads(done.stdout)
    assert content["schema"] == "gapscope.check/1"
    assert content["verdict"] == "fail"
    rules = {rule["rule"]: rule for rule in content["rules"]}
    assert rules["max_regression_percent"]["verdict"] == "fail"
    assert rules["max_regression_percent"]["measured"] == pytest.approx(5.09, abs=0.02)
    assert rules["max_step_ms"]["verdict"] == "fail"


def test_check_of_what_is_not_known_exits_3(gapscope, tiny_run, other_world, policy):
    without = gapscope("check", tiny_run, "--policy", policy)
    assert without.returncode == 3
    assert "unknown  max_regression_percent: unknown: no baseline" in without.stdout
    other = gapscope(
        "check", other_world, "--policy", policy, "--baseline", tiny_run, "--format", "junit"
    )
    assert other.returncode == 3
    suite = ET.fromstring(other.stdout)
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")


def test_a_baseline_that_is_no_run_is_refused_whatever_the_rules(gapscope, tiny_run, tmp_path):
    policy = tmp_path / "steps.toml"
    policy.write_text("min_steps = 1\n", encoding="utf-8")
    done = gapscope("check", tiny_run, "--policy", policy, "--baseline", tmp_path / "nope.run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nope.run" in done.stderr
    assert gapscope("check", tiny_run, "--policy", policy, "--baseline", tiny_run).returncode == 0


def test_the_example_tolerates_what_every_nsight_capture_lacks(gapscope, policy, tmp_path):
    cut = Path(__file__).resolve().parents[1] / "data" / "nsys_stats" / "n_base_step1.sqlite.gz"
    capture = tmp_path / "rank0.sqlite"
    capture.write_bytes(gzip.decompress(cut.read_bytes()))
    run = tmp_path / "cut.run"
    assert gapscope("ingest", capture, "-o", run, "--rank", "rank0.sqlite=0").returncode == 0
    found = gapscope("check", run, "--policy", policy, "--json")
    rules = {rule["rule"]: rule for rule in json.loads(found.stdout)["rules"]}
    assert rules["tolerated_limits"]["verdict"] == "pass", rules["tolerated_limits"]


def test_check_annotates_for_github(gapscope, slower, policy):
    done = gapscope("check", slower, "--policy", policy, "--format", "github")
    assert done.returncode == 1
    kinds = [line.split(" ")[0] for line in done.stdout.splitlines()]
    assert kinds == ["::error", "::warning"]


def test_the_example_policy_is_printed(gapscope):
    done = gapscope("check", "--example")
    assert (done.returncode, done.stdout) == (0, EXAMPLE)
