"""What holds for every command: help, exit codes, where words go, how errors read."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = (
    *("ingest", "report", "sql", "steps", "doctor", "export", "demo"),
    *("ranks", "rules", "what-if", "validate", "simulate", "compare", "check"),
)
HEAVY = ("duckdb", "pyarrow", "polars", "plotly", "numpy", "jinja2", "rich")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_each_option_and_gives_an_example(gapscope, command):
    done = gapscope(command, "--help")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "Example: gapscope " + command in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)(.*)$", done.stdout, re.MULTILINE)
    assert options
    for name, rest in options:
        following = done.stdout.split(name + rest, 1)[1].splitlines()[1:2]
        explained = re.search(r"\s{2,}\S", rest) or (following and following[0].startswith(" " * 8))
        assert explained, f"{command} {name} has no help"


def test_help_lists_every_command(gapscope):
    done = gapscope("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^  {command} ", done.stdout, re.MULTILINE)


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom gapscope.cli.app import run\nrun(['--help'])\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_version_line_names_every_versioned_surface(gapscope):
    done = gapscope("--version")
    assert done.returncode == 0
    pattern = r"gapscope \d+\.\d+\.\d+ \(sql v\d+, schema \d+, report \d+, duckdb \d+\.\d+\.\d+\)\n"
    assert re.fullmatch(pattern, done.stdout)


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        (["nonsense"], "usage"),
        (["steps", "--nonsense"], "usage"),
        (["steps", "no.run"], "no-run"),
        (["report", "no.run"], "no-run"),
        (["sql", "no.run", "-c", "SELECT 1"], "no-run"),
        (["doctor", "no.run"], "no-run"),
        (["what-if", "no.run"], "no-run"),
        (["validate", "no.run"], "no-run"),
        (["compare", "no.run", "no.run"], "no-run"),
        (["compare", "no.run"], "usage"),
        (["compare", "a.run", "b.run", "-o", "x.pdf"], "unknown-format"),
        (["compare", "a.run", "b.run", "--json", "-o", "x.md"], "usage"),
        (["check"], "usage"),
        (["check", "--policy", "none.toml"], "bad-policy"),
        (["export", "no.run", "--to", "csv", "-o", "out"], "no-run"),
        (["export", "--to", "csv"], "usage"),
        (["export", "--to", "perfetto", "-o", "x", "--redact", "names"], "usage"),
        (["ingest"], "usage"),
        (["ingest", "nothing-here"], "not-found"),
        (["ingest", ".", "--rank", "a=b"], "usage"),
        (["ingest", "."], "no-captures"),
        (["report", "-o", "report.pdf"], "unknown-format"),
        (["report", "--summary", "-o", "x.html"], "usage"),
        (["sql", "-c", "SELECT 1", "-f", "x.sql"], "usage"),
        (["sql", "--show", "no_view"], "unknown-view"),
    ],
)
def test_errors_are_one_line_and_a_hint_and_exit_2(gapscope, tmp_path, arguments, slug):
    done = gapscope(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    first, *rest = done.stderr.splitlines()
    assert first.startswith(f"error[{slug}]: ")
    assert not first.endswith(".")
    assert len(rest) == 1
    assert rest[0].startswith("  hint: ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["report", "--format", "foo"],
            "invalid value for '--format': 'foo' is not one of 'html', 'md', 'json', 'text'",
        ),
        (["steps", "--rank", "x"], "invalid value for '--rank': "),
        (["ingest", "--workers", "0"], "invalid value for '--workers': "),
        (["ingest", "--workers"], "option '--workers' requires an argument"),
    ],
)
def test_usage_errors_speak_of_what_was_typed(gapscope, tmp_path, arguments, said):
    done = gapscope(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    first, hint = done.stderr.splitlines()
    assert first.startswith(f"error[usage]: {said}")
    assert "Value error" not in first
    assert "Input should" not in first
    assert hint == f"  hint: `gapscope {arguments[0]} --help`"


def test_no_arguments_shows_help_and_exits_2(gapscope):
    done = gapscope()
    assert done.returncode == 2
    assert "Commands:" in done.stdout + done.stderr


def test_colour_only_when_asked_for_and_no_color_wins(gapscope):
    plain = gapscope("steps", "no.run")
    forced = gapscope("steps", "no.run", FORCE_COLOR="1")
    refused = gapscope("steps", "no.run", FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b" not in plain.stderr
    assert "\x1b[31m" in forced.stderr
    assert refused.stderr == plain.stderr
    assert re.sub(r"\x1b\[\d+m", "", forced.stderr) == plain.stderr


def test_unexpected_exception_is_one_line_without_traceback():
    code = (
        "import sys\nfrom gapscope.cli import app, output\n"
        "def broken(*a, **k): raise KeyError('boom')\n"
        "app.app = broken\nsys.exit(app.run(['steps']))"
    )
    for debug in (False, True):
        environment = {**os.environ, "GAPSCOPE_DEBUG": "1" if debug else ""}
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 2
        assert "error[internal]: KeyError: 'boom'" in done.stderr
        assert "GAPSCOPE_DEBUG=1" in done.stderr
        assert ("Traceback" in done.stderr) == debug


def test_interrupt_exits_130():
    code = (
        "import sys\nfrom gapscope.cli import app\n"
        "def interrupted(*a, **k): raise KeyboardInterrupt\n"
        "app.app = interrupted\nsys.exit(app.run([]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "interrupted\n"


def test_broken_pipe_is_quiet(tiny_run):
    command = f"{sys.executable} -m gapscope sql {tiny_run} --format csv -c 'FROM v1.op' | head -1"
    done = subprocess.run(
        ["bash", "-c", f"{command}; echo codes ${{PIPESTATUS[@]}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("rank,op_id,")
    assert done.stdout.splitlines()[-1] in ("codes 141 0", "codes 0 0")


def test_run_is_never_written_to(gapscope, tiny_run):
    before = {path: path.stat().st_mtime_ns for path in tiny_run.rglob("*")}
    gapscope("steps", tiny_run)
    gapscope("report", tiny_run, "-o", "-")
    gapscope("doctor", tiny_run)
    refused = gapscope("sql", tiny_run, "-c", "CREATE TABLE main.x AS SELECT 1 AS one")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error[sql-error]: ")
    assert before == {path: path.stat().st_mtime_ns for path in tiny_run.rglob("*")}


def test_slugs_in_code_are_kebab_case():
    sources = (Path(__file__).resolve().parents[2] / "gapscope").rglob("*.py")
    slugs = {
        slug
        for source in sources
        for slug in re.findall(r'GapscopeError\(\s*"([^"]+)"', source.read_text(encoding="utf-8"))
    }
    assert "no-run" in slugs
    assert all(re.fullmatch(r"[a-z]+(-[a-z0-9]+)*", slug) for slug in slugs)
