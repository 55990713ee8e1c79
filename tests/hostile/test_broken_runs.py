"""Runs that were damaged or moved after they were made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gapscope.cli.app import run as gapscope
from tests.hostile.conftest import tree


@pytest.fixture
def copied(tiny_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_run, tmp_path / "gapscope.run"))


COMMANDS = [
    ["sql", "-c", "FROM step_budget"],
    ["report", "--format", "md", "-o", "-"],
    ["steps"],
    ["doctor"],
    ["export", "--to", "perfetto", "-o", "x.json.gz"],
    ["ingest", "--relink"],
]


def damaged(run: Path, how: str) -> None:
    database, manifest = run / "run.duckdb", run / "manifest.json"
    whole = database.read_bytes()
    if how == "database gone":
        database.unlink()
    elif how == "database empty":
        database.write_bytes(b"")
    elif how == "database garbage":
        database.write_bytes(b"garbage" * 5_000)
    elif how.startswith("database cut"):
        database.write_bytes(whole[: len(whole) * int(how[-1]) // 10])
    elif how == "database zeroed":
        database.write_bytes(whole[:12_288] + bytes(len(whole) - 12_288))
    else:
        manifest.write_text(how)


@pytest.mark.parametrize(
    "how",
    [
        "database gone", "database empty", "database garbage", "database cut 2", "database cut 6",
        "database zeroed", "", "{", "[]", "7", '{"schema_version": "x"}', '{"schema_version": 999}',
    ],
)  # fmt: skip
def test_damaged(
    copied: Path, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    damaged(copied, how)
    monkeypatch.chdir(tmp_path)
    before = tree(tmp_path)
    for name, *options in COMMANDS:
        code = gapscope([name, *options, str(copied)])
        said = capsys.readouterr()
        assert "internal" not in said.err
        if code == 0 and "cut" in how:
            continue  # what is left of the database was enough
        assert code == 2, (name, said)
        assert said.out == ""
        lines = said.err.splitlines()
        assert lines[0].startswith("error["), said.err
        assert len(lines) == 2, said.err
        if "cut" not in how:
            assert tree(tmp_path) == before


def test_verdict_outlives_the_parquet(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(copied / "data")
    shutil.rmtree(copied / "derived")
    for view in ("step_budget", "capture_quality", "rank", "step"):
        assert gapscope(["sql", str(copied), "-c", f"SELECT count(*) > 0 FROM {view}"]) == 0
        assert "true" in capsys.readouterr().out
    assert gapscope(["sql", str(copied), "-c", "FROM op"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error[sql-error]: IO Error: No files found")
    assert "--relink" in said
    assert len(said.splitlines()) == 2
    for command in (["report", "-o", "-"], ["export", "--to", "csv", "-o", str(copied / "x")]):
        code = gapscope([command[0], str(copied), *command[1:]])
        said = capsys.readouterr().err
        assert code == 2
        assert said.startswith("error[")
        assert "internal" not in said
