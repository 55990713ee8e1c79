"""report, sql, steps, doctor, export and demo on the shipped sample."""

from __future__ import annotations

import csv
import io
import json
import shutil

import pytest

from tests.scenarios.exports import MS, Capture


def test_report_by_default_is_html_and_may_be_typed_twice(gapscope, tiny_run, tmp_path):
    for _ in range(2):
        done = gapscope("report", tiny_run, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "gapscope-report.html\n"
        assert len(done.stderr.splitlines()) == 3
    page = (tmp_path / "gapscope-report.html").read_bytes()
    assert page.lower().startswith(b"<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["gapscope-report.html"]


def test_report_does_not_replace_what_is_not_its_own(gapscope, tiny_run, tmp_path):
    other = tmp_path / "gapscope-report.html"
    other.write_text("<p>mine</p>", encoding="utf-8")
    done = gapscope("report", tiny_run, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error[exists]: ")
    assert other.read_text(encoding="utf-8") == "<p>mine</p>"
    named = tmp_path / "named.md"
    assert gapscope("report", tiny_run, "-o", named).returncode == 0
    assert gapscope("report", tiny_run, "-o", named).returncode == 2
    assert gapscope("report", tiny_run, "-o", named, "-f").returncode == 0


def test_a_directory_is_no_file_to_write(gapscope, tiny_run, tmp_path):
    for command in (("report", tiny_run), ("compare", tiny_run, tiny_run)):
        done = gapscope(*command, "-o", tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error[exists]: `{tmp_path}` is a directory\n")


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["-o", "-", "--format", "html"], "<!doctype html>"),
        (["-o", "-", "--format", "md"], "#"),
        (["-o", "-", "--format", "json"], "{"),
    ],
)
def test_report_on_stdout_is_the_report_alone(gapscope, tiny_run, arguments, start):
    done = gapscope("report", tiny_run, "--no-charts", *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.lower().startswith(start)
    again = gapscope("report", tiny_run, "--no-charts", *arguments)
    assert again.stdout == done.stdout


def test_report_as_text_fits_80_columns(gapscope, tiny_run):
    done = gapscope("report", tiny_run, "-o", "-")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_report_json_says_what_was_written(gapscope, tiny_run, tmp_path):
    done = gapscope("report", tiny_run, "--json", "-o", "r.md", cwd=tmp_path)
    content = json.loads(done.stdout)
    assert list(content) == ["schema", "path", "format", "bytes"]
    assert content["bytes"] == (tmp_path / "r.md").stat().st_size
    assert done.stderr == ""


def test_summary_is_three_lines(gapscope, tiny_run, tmp_path):
    done = gapscope("report", tiny_run, "--summary", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    assert list(tmp_path.iterdir()) == []


def test_sql_formats_agree_and_keep_integers(gapscope, tiny_run):
    query = (
        "SELECT rank, step_id, step_ns, sum(step_ns) OVER () AS total, NULL AS nothing "
        "FROM step_budget WHERE projection = 'device' ORDER BY ALL"
    )
    rows = json.loads(gapscope("sql", tiny_run, "--format", "json", "-c", query).stdout)
    assert len(rows) == 6
    assert all(type(row["step_ns"]) is int and type(row["total"]) is int for row in rows)
    assert rows[0]["nothing"] is None
    assert rows[0]["total"] == sum(row["step_ns"] for row in rows)
    text = gapscope("sql", tiny_run, "--format", "csv", "-c", query).stdout
    read = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["step_ns"]) for row in read] == [row["step_ns"] for row in rows]
    markdown = gapscope("sql", tiny_run, "--format", "md", "-c", query).stdout.splitlines()
    assert markdown[0] == "| rank | step_id | step_ns | total | nothing |"
    assert len(markdown) == 8
    table = gapscope("sql", tiny_run, "-c", query).stdout.splitlines()
    assert table[0].split() == ["rank", "step_id", "step_ns", "total", "nothing"]
    assert len(table) == 8


def test_sql_of_no_rows_is_still_a_document(gapscope, tiny_run):
    query = "FROM step WHERE false"
    assert json.loads(gapscope("sql", tiny_run, "--format", "json", "-c", query).stdout) == []


def test_sql_from_a_file_and_from_stdin(gapscope, tiny_run, tmp_path):
    file = tmp_path / "q.sql"
    file.write_text("SELECT 1 AS one; -- and\nSELECT 2 AS two;", encoding="utf-8")
    done = gapscope("sql", tiny_run, "-f", file, "--format", "csv")
    assert done.stdout == "one\n1\ntwo\n2\n"
    piped = gapscope("sql", tiny_run, "--format", "csv", stdin="SELECT count(*) AS n FROM v1.rank")
    assert piped.stdout == "n\n2\n"


def test_sql_list_and_show_need_no_run(gapscope, tmp_path):
    listed = gapscope("sql", "--list", "--format", "csv", cwd=tmp_path)
    names = [row["name"] for row in csv.DictReader(io.StringIO(listed.stdout))]
    assert {"v1.step_budget", "v1.capture_quality", "v1.gpu_op"} <= set(names)
    shown = gapscope("sql", "--show", "step_budget", cwd=tmp_path)
    assert "exposed_comm_ns" in shown.stdout
    assert "SELECT" in shown.stdout


def test_tables_fit_the_width_and_data_formats_keep_everything(gapscope, tiny_run):
    long = "repeat('word ', 60) AS text"
    query = f"SELECT 12345 AS a, {long}, 678 AS b"
    table = gapscope("sql", tiny_run, "-c", query, COLUMNS="60").stdout.splitlines()
    assert max(map(len, table)) <= 60
    assert len(table) == 2 + 4
    assert table[0].split() == ["a", "text", "b"]
    assert table[2].split()[0] == "12345"
    assert table[2].split()[-1] == "678"
    assert table[-1].endswith("…")
    whole = "word " * 60
    assert whole in gapscope("sql", tiny_run, "--format", "csv", "-c", query).stdout
    piped = gapscope("sql", tiny_run, "-c", query, COLUMNS="").stdout.splitlines()
    assert len(piped) == 3
    assert whole in piped[2]


def test_table_without_room_drops_whole_columns(gapscope, tiny_run):
    cut = gapscope("sql", tiny_run, "-c", "FROM step_budget ORDER BY ALL")
    assert cut.stderr == (
        "columns that do not fit are left out: `--format csv`, json or md has all\n"
    )
    assert gapscope("sql", tiny_run, "-c", "SELECT 1 AS a").stderr == ""
    done = cut.stdout.splitlines()
    assert max(map(len, done)) <= 80
    assert all(line.endswith("…") for line in [done[0], *done[2:]])
    whole = json.loads(
        gapscope("sql", tiny_run, "--format", "json", "-c", "FROM step_budget ORDER BY ALL").stdout
    )
    shown = done[0].split()[:-1]
    assert len(shown) > 3
    first = "".join("" if whole[0][name] is None else str(whole[0][name]) for name in shown)
    assert "".join(done[2].split()[:-1]) == first


def test_show_wraps_the_meaning_of_columns(gapscope):
    wrapped = gapscope("sql", "--show", "step_budget").stdout
    columns = "\n".join(wrapped.split("\n\n")[:2]).splitlines()
    assert max(map(len, columns)) <= 80
    assert "…" not in wrapped
    whole = gapscope("sql", "--show", "step_budget", COLUMNS="").stdout
    assert sorted(wrapped.split("\n\n")[1].replace("-", "").split()) == sorted(
        whole.split("\n\n")[1].replace("-", "").split()
    )


@pytest.mark.parametrize("name", ["run_option", "audit_result", "ingest_note"])
def test_tables_of_the_run_need_no_schema(gapscope, tiny_run, name):
    done = gapscope("sql", tiny_run, "--format", "csv", "-c", f"FROM {name}")
    assert done.returncode == 0, done.stderr


def test_print_init_opens_the_run_in_another_tool(gapscope, tiny_run):
    import duckdb

    script = gapscope("sql", tiny_run, "--print-init").stdout
    with duckdb.connect() as con:
        for statement in duckdb.extract_statements(script):
            con.execute(statement)
        assert con.execute("SELECT count(*) FROM v1.op").fetchall() == [(2406,)]


def test_shell_hands_over_to_the_users_duckdb_read_only(tiny_run, tmp_path):
    """With a terminal and no query; a stand-in for the shell records how it was started."""
    import os
    import pty
    import subprocess
    import sys

    fake = tmp_path / "duckdb"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$0.arguments"\n', encoding="utf-8")
    fake.chmod(0o755)
    master, slave = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "gapscope", "sql", str(tiny_run)],
            stdin=slave,
            capture_output=True,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
            check=True,
            timeout=60,
        )
    finally:
        os.close(master)
        os.close(slave)
    arguments = (tmp_path / "duckdb.arguments").read_text(encoding="utf-8").splitlines()
    assert arguments[:2] == ["-readonly", "-cmd"]
    assert arguments[2] == f"SET VARIABLE gapscope_run = '{tiny_run.resolve()}'"
    assert arguments[3] == str(tiny_run / "run.duckdb")


def test_steps_lists_each_step_of_each_rank(gapscope, tiny_run):
    done = gapscope("steps", tiny_run)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2 + 6
    content = json.loads(gapscope("steps", tiny_run, "--rank", "1", "--json").stdout)
    assert content["schema"] == "gapscope.steps/1"
    assert [step["step_id"] for step in content["steps"]] == [0, 1, 2]
    assert all(195_000_000 < step["device_ns"] < 198_000_000 for step in content["steps"])
    candidates = gapscope("steps", tiny_run, "--candidates")
    assert candidates.returncode == 0
    assert "ProfilerStep" in candidates.stdout


def test_no_candidate_covers_more_than_the_whole_capture(gapscope, tmp_path):
    """The device is busy for 4 of the 20 ms that a range of the host lasts; another name nests in itself."""
    capture = Capture(rank=0, world=1)
    capture.range("train", 0, 20 * MS)
    capture.range("recursive", 0, 10 * MS)
    capture.range("recursive", 2 * MS, 8 * MS)
    capture.kernel("gemm", 7, 6 * MS, 10 * MS, issued=5 * MS)
    source = capture.write(tmp_path / "rank0.sqlite")
    gapscope("ingest", source, "-o", tmp_path / "run")
    done = gapscope("steps", tmp_path / "run", "--candidates", "--json")
    found = json.loads(done.stdout)["candidates"]
    assert [(one["name"], one["range_count"], one["capture_share"]) for one in found] == [
        ("train", 1, 1.0),
        ("recursive", 2, 0.5),
    ]


def test_candidates_whose_names_differ_in_a_number_are_one(gapscope, tmp_path):
    capture = Capture(rank=0, world=1)
    for step in range(10):
        capture.range(f"step {step + 8}", 20 * step * MS, (20 * step + 19) * MS)
    capture.range("evaluation 1", 200 * MS, 240 * MS)
    capture.kernel("gemm", 7, 6 * MS, 10 * MS, issued=5 * MS)
    gapscope("ingest", capture.write(tmp_path / "rank0.sqlite"), "-o", tmp_path / "run")
    found = json.loads(gapscope("steps", tmp_path / "run", "--candidates", "--json").stdout)
    assert [(one["name"], one["range_count"]) for one in found["candidates"]] == [
        (r"step \d+", 10),
        ("evaluation 1", 1),
    ]


@pytest.mark.parametrize("option", [[], ["--candidates"], ["--json"]])
def test_steps_of_an_absent_rank_say_which_there_are(gapscope, tiny_run, option):
    done = gapscope("steps", tiny_run, "--rank", "7", *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error[no-rank]: `{tiny_run}` has no rank 7\n  hint: its ranks: 0-1\n"


def test_doctor_judges_the_machine(gapscope, tmp_path):
    done = gapscope("doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert done.stderr == ""
    assert all(
        line.startswith(("ok    ", "info  ", "warn  ", "      "))
        for line in done.stdout.splitlines()
    )
    missing = gapscope("doctor", cwd=tmp_path, path="/nonexistent")
    assert "nsys on PATH: not found" in missing.stdout


def test_doctor_of_a_run_fails_when_an_audit_fails(gapscope, tiny_run, tmp_path):
    import shutil

    import duckdb

    done = gapscope("doctor", tiny_run)
    assert done.returncode == 0, done.stdout
    assert "launch_join (rank 0-1): " in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    broken = tmp_path / "broken.run"
    shutil.copytree(tiny_run, broken)
    with duckdb.connect(str(broken / "run.duckdb")) as con:
        con.execute(
            "INSERT INTO v1.audit_result VALUES (0, 'budget_closes', 'v1.window_budget', 2)"
        )
    failed = gapscope("doctor", broken, "--json")
    assert failed.returncode == 1
    first = json.loads(failed.stdout)["checks"][0]
    assert (first["status"], first["name"]) == ("fail", "audit budget_closes")


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_export_files_hold_the_rows_of_the_views(gapscope, tiny_run, tmp_path, form):
    import duckdb

    done = gapscope("export", tiny_run, "--to", form, "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out\n"
    with duckdb.connect() as con:
        count = con.execute(f"SELECT count(*) FROM '{tmp_path}/out/op.{form}'").fetchall()
    assert count == [(2406,)]
    again = gapscope("export", tiny_run, "--to", form, "-o", "out", cwd=tmp_path)
    assert again.returncode == 2
    assert (
        gapscope("export", tiny_run, "--to", form, "-o", "out", "-f", cwd=tmp_path).returncode == 0
    )
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_export_duckdb_needs_nothing_else(gapscope, tiny_run, tmp_path):
    import duckdb

    fat = tmp_path / "fat.duckdb"
    done = gapscope("export", tiny_run, "--to", "duckdb", "-o", fat, "--redact", "paths,hosts")
    assert done.returncode == 0, done.stderr
    with duckdb.connect(str(fat), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM op").fetchall() == [(2406,)]
        sources = con.execute("SELECT source_path FROM v1.rank ORDER BY rank").fetchall()
        assert sources == [("capture-0",), ("capture-1",)]
        views = con.execute(
            "SELECT count(*) FROM duckdb_views() WHERE NOT internal AND sql LIKE '%read_parquet%'"
        ).fetchall()
    assert views == [(0,)]
    assert gapscope("export", tiny_run, "--to", "duckdb", "-o", fat).returncode == 2


def test_export_never_replaces_a_foreign_directory(gapscope, tiny_run, tmp_path):
    done = gapscope("export", tiny_run, "--to", "csv", "-o", tmp_path, "-f")
    assert done.returncode == 2
    assert done.stderr.startswith("error[exists]: ")


def test_demo_makes_both_results_and_may_be_typed_again(gapscope, tmp_path):
    first = gapscope("demo", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stdout == "gapscope-demo.run\ngapscope-demo-report.html\n"
    talk, commands = first.stderr.split("next: ")
    assert all(len(line) <= 80 for line in talk.splitlines())
    # A command to type is never broken, however long the path of the environment is.
    assert [line.split()[-2:] for line in commands.splitlines()[1:3]] == [
        ["steps", "gapscope-demo.run"],
        ["ingest", "TRACES/"],
    ]
    again = gapscope("demo", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "replacing `gapscope-demo.run`" in again.stderr
    content = json.loads(again.stdout)
    assert content["schema"] == "gapscope.demo/1"


def test_demo_is_the_same_beside_a_configuration_of_the_users(gapscope, tmp_path):
    (tmp_path / "gapscope.toml").write_text("[run]\nworld_size = 64\n")
    done = gapscope("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gapscope.toml" not in done.stderr
    assert "contradiction" not in done.stderr


def test_demo_is_never_taken_for_the_users_run(gapscope, sample, tmp_path):
    """The README in order: demo, then `ingest` and `report` with their defaults."""
    assert gapscope("demo", "-q", cwd=tmp_path).returncode == 0
    early = gapscope("report", cwd=tmp_path)
    assert early.returncode == 2
    assert early.stderr.startswith("error[no-run]: ")
    assert gapscope("ingest", sample, "-q", "--workers", "1", cwd=tmp_path).returncode == 0
    assert gapscope("report", cwd=tmp_path).returncode == 0
    assert gapscope("demo", "-q", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gapscope-demo-report.html",
        "gapscope-demo.run",
        "gapscope-report.html",
        "gapscope.run",
    ]


def test_demo_says_what_can_be_typed_when_gapscope_is_not_on_path(gapscope, tmp_path):
    import os
    import subprocess
    import sys

    done = gapscope("demo", "-o", "my demo", cwd=tmp_path, path="/nonexistent")
    following = done.stderr.split("next: ")[1].splitlines()[1:]
    prefix = f"{sys.executable} -m gapscope "
    assert all(line.strip().startswith(prefix) for line in following)
    typed = subprocess.run(
        ["sh", "-c", following[0].strip()], cwd=tmp_path, capture_output=True, check=False
    )
    assert typed.returncode == 0, typed.stderr

    script = tmp_path / "venv bin" / "gapscope"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nfrom gapscope.cli.invocation import typable\nprint(typable())\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    for path, said in (("/nonexistent", f"'{script}'"), (str(script.parent), "gapscope")):
        shown = subprocess.run(
            [script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
        )
        assert shown.stdout.strip() == said


def test_demo_keeps_what_is_not_its_own(gapscope, tmp_path):
    page = tmp_path / "gapscope-demo-report.html"
    page.write_text("mine", encoding="utf-8")
    refused = gapscope("demo", cwd=tmp_path)
    assert refused.returncode == 2
    assert page.read_text(encoding="utf-8") == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["gapscope-demo-report.html"]
    forced = gapscope("demo", "-f", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr


def test_built_in_prompt_survives_a_wrong_query(tiny_run, tmp_path):
    """With a terminal and no DuckDB shell on PATH."""
    import os
    import pty
    import subprocess
    import sys

    master, slave = pty.openpty()
    try:
        os.write(master, b"SELECT nope;\nSELECT count(*) AS n\nFROM v1.rank;\n.quit\n")
        done = subprocess.run(
            [sys.executable, "-m", "gapscope", "sql", str(tiny_run), "--format", "csv"],
            stdin=slave,
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": str(tmp_path), "TERM": "dumb"},
            check=True,
            timeout=60,
        )
    finally:
        os.close(master)
        os.close(slave)
    assert "n\n2\n" in done.stdout
    assert "error[sql-error]: " in done.stderr


@pytest.mark.parametrize("command", [("report", "-o", "x.html"), ("sql", "-c", "FROM v1.gain")])
def test_a_run_without_a_view_of_today_says_to_ingest_again(gapscope, tiny_run, tmp_path, command):
    import duckdb

    old = tmp_path / "old.run"
    shutil.copytree(tiny_run, old)
    with duckdb.connect(str(old / "run.duckdb")) as con:
        con.execute("DROP VIEW main.gain")
        con.execute("DROP VIEW v1.gain")
    name, *options = command
    done = gapscope(name, old, *options)
    assert done.returncode == 2
    assert done.stderr.startswith("error[run-too-old]: ")
    assert "without `v1.gain`" in done.stderr
    assert "gapscope ingest" in done.stderr
    assert gapscope("sql", old, "-c", "FROM v1.no_view").stderr.startswith("error[sql-error]: ")
