"""The README is executed: every command, every query, every number that it shows.

Its first two commands install things, so `.ci/run` executes those, word for word.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gapscope import config

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)
COMMANDS = (
    *("ingest", "report", "sql", "steps", "doctor", "export", "demo"),
    *("ranks", "rules", "what-if", "validate", "simulate", "compare", "check"),
)


@pytest.fixture
def newcomer(sample, tmp_path):
    """A directory with `traces/`, and an environment where `gapscope` and `duckdb` are on PATH."""
    shutil.copytree(sample, tmp_path / "here" / "traces")
    tools = tmp_path / "bin"
    tools.mkdir()
    command = tools / "gapscope"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gapscope "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    own = Path(sys.executable).parent
    path = os.pathsep.join([str(tools), str(own), os.environ["PATH"]])
    python = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    # The README's first command makes this one, with `gapscope` in it.
    activate = tmp_path / "here" / ".venv" / "bin" / "activate"
    activate.parent.mkdir(parents=True)
    activate.write_text(f"PATH='{tools}':\"$PATH\"\n", encoding="utf-8")
    environment = {**os.environ, "PATH": path, "PYTHONPATH": python, "COLUMNS": "80"}
    return tmp_path / "here", environment


def _run(command: list[str], newcomer) -> str:
    directory, environment = newcomer
    done = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_first_two_blocks_are_one_command_each():
    for kind, text in BLOCKS[:2]:
        assert kind == "sh"
        assert len(text.splitlines()) == 1
    assert BLOCKS[0][1].rstrip().endswith("gapscope demo")
    assert BLOCKS[1][1].rstrip().endswith("pytest")


def test_every_other_block_runs_and_shows_what_it_prints(newcomer):
    if shutil.which("duckdb", path=newcomer[1]["PATH"]) is None:
        pytest.skip("no DuckDB shell here; the extra `dev` brings one")
    printed = ""
    ran = 0
    for kind, text in BLOCKS[2:]:
        if kind == "sh":
            printed = _run(["bash", "-euo", "pipefail", "-c", text], newcomer)
            ran += 1
        elif kind == "python":
            assert "step_ns" in _run([sys.executable, "-c", text], newcomer)
        elif kind == "text":
            numbers = re.findall(r"\d+", text)
            assert len(numbers) > 10
            assert re.findall(r"\d+", printed) == numbers
    assert ran >= 4


def test_example_of_gapscope_toml_holds_every_key(tmp_path):
    (text,) = (text for kind, text in BLOCKS if kind == "toml")
    file = tmp_path / "gapscope.toml"
    file.write_text(text, encoding="utf-8")
    found = config.read(file)
    assert set(found) == set(config.CHECKS)
    missing = {
        (table.__name__.rpartition(".")[2], key)
        for table in (config.run, config.model, config.device, config.fsdp2)
        for key in set(table.KEYS) - set(found[table.__name__.rpartition(".")[2]])
    }
    # It and the shapes exclude each other.
    assert missing == {("model", "flops_per_token")}
    assert "\n# flops_per_token = " in text


def test_readme_names_only_commands_that_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    named = set(re.findall(r"`gapscope ([\w-]+)", text)) | set(
        re.findall(r"^gapscope ([\w-]+)", text, re.MULTILINE)
    )
    assert named <= set(COMMANDS)
    assert {"ingest", "report", "sql", "steps", "doctor", "export"} <= named


@pytest.mark.parametrize("command", COMMANDS)
def test_example_in_help_works(newcomer, tiny_run, command):
    directory, _ = newcomer
    if command not in ("ingest", "demo", "simulate", "compare"):
        shutil.copytree(tiny_run, directory / "gapscope.run")
    if command == "validate":
        truth = "run,expected_class\ngapscope,R2\n"
        (directory / "truth.csv").write_text(truth, encoding="utf-8")
    if command in ("compare", "check"):
        from gapscope.compare.policy import EXAMPLE

        for name in ("before.run", "after.run"):
            shutil.copytree(tiny_run, directory / name)
        (directory / "policy.toml").write_text(EXAMPLE, encoding="utf-8")
    shown = _run(["gapscope", command, "--help"], newcomer)
    example = re.search(r"Example: (gapscope .*?)\n\s*\n", shown, re.DOTALL)
    assert example, shown
    _run(["bash", "-c", " ".join(example.group(1).split())], newcomer)
