"""Configuration read off a program, and declared in `gapscope.toml`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import duckdb
import pytest

from gapscope.config import fsdp2
from gapscope.ingest.pipeline import ingest
from gapscope.model.configuration import Configuration, detect, differences
from gapscope.model.load import load

ANNOTATED = Path(__file__).parents[1] / "data" / "annotated"

SAID = {
    "reshard_true": "4 units, root with parameters, 4 gathered again in backward",
    "reshard_false": "4 units, root with parameters, 0 gathered again in backward",
    "accumulation": "4 units, root with parameters, 4 gathered again in backward, 2 microbatches",
    "explicit_prefetch": "4 units, root with parameters, 4 gathered again in backward, "
    "explicit forward prefetch 2, backward prefetch 2",
    "root_without_parameters": "6 units, root without parameters, 5 gathered again in backward",
}


@pytest.mark.parametrize("name", SAID)
def test_configuration_of_a_capture_in_words(name: str, tmp_path: Path) -> None:
    ingest([ANNOTATED / f"{name}.json.gz"], tmp_path / "run")
    with duckdb.connect(str(tmp_path / "run" / "run.duckdb"), read_only=True) as con:
        (batch,) = load(con).batches
    found = detect(batch.program)
    assert found.words() == SAID[name]
    assert differences(found, {"units": found.units}) == []
    assert differences(found, {"units": 99}) == [
        f"units: declared 99, the capture shows {found.units}"
    ]


def test_every_option_that_is_read_off_a_program_can_be_declared() -> None:
    assert set(fsdp2.KEYS) == {field.name for field in fields(Configuration)}


def _ingest(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gapscope", "ingest", str(ANNOTATED / "reshard_true.json.gz")]
    return subprocess.run(
        [*command, *arguments], cwd=where, capture_output=True, text=True, check=False
    )


def _checks(where: Path) -> dict[str, tuple[str, str]]:
    with duckdb.connect(str(where / "gapscope.run" / "run.duckdb"), read_only=True) as con:
        rows = con.execute("SELECT check_name, status, detail FROM v1.model_check").fetchall()
        bounds = con.execute("SELECT count(*) FROM v1.step_gap").fetchone()
    return {name: (status, detail) for name, status, detail in rows} | {
        "step_gap": ("", str(bounds[0] if bounds else 0))
    }


def test_a_true_declaration_is_said_and_a_wrong_one_withholds_the_bound(tmp_path: Path) -> None:
    (tmp_path / "gapscope.toml").write_text("[fsdp2]\nunits = 4\nresharded = 4\n")
    assert _ingest(tmp_path).returncode == 0
    checks = _checks(tmp_path)
    assert checks["configuration"][0] == "ok"
    assert "as declared" in checks["configuration"][1]
    assert checks["step_gap"][1] == "2"
    other = tmp_path / "other.toml"
    other.write_text("[fsdp2]\nresharded = 0\n")
    assert _ingest(tmp_path, "--config", "other.toml", "--force").returncode == 0
    checks = _checks(tmp_path)
    assert checks["configuration"] == (
        "fail",
        "what gapscope.toml declares is not what ran: resharded: declared 0, the capture shows 4",
    )
    assert checks["step_gap"][1] == "0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[fsdp2", "is no TOML"),
        ("[megatron]\n", "unknown `megatron`"),
        ("[fsdp2]\nshards = 3\n", "has no key `shards`"),
        ("[fsdp2]\nunits = true\n", "it must be a whole number"),
        ("[fsdp2]\nhybrid_shard = 1\n", "it must be true or false"),
    ],
)
def test_a_bad_declaration_is_one_line_and_leaves_nothing(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "gapscope.toml").write_text(text)
    result = _ingest(tmp_path)
    assert result.returncode != 0
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "gapscope.run").exists()
