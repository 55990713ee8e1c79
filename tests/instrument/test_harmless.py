"""Whatever happens to the instrument, the program trains as without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.instrument.conftest import HERE, SITE, launch

TRAIN = str(HERE / "train.py")

# Run behind our own sitecustomize, which has loaded the package by then.
SABOTAGE = {
    "every-word": """
        from _gapscope_instrument import voice
        def fail(*_): raise RuntimeError("sabotage")
        voice.Voice._of = voice.Voice._numbered = fail
    """,
    "every-look-at-fsdp2": """
        from _gapscope_instrument import collectives, units
        def fail(*_): raise RuntimeError("sabotage")
        units.fqn = units._group = collectives._describe = fail
        units.Units.place = fail
    """,
    "disk-and-net": """
        from _gapscope_instrument import clock, record
        def fail(*_): raise OSError("sabotage")
        record.find_directory = clock.ClockExchange.serve = fail
    """,
    "patching": """
        from _gapscope_instrument import patch
        def fail(*_): raise RuntimeError("sabotage")
        patch._labels = fail
    """,
}


@pytest.fixture(scope="session")
def plain_result(library: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each rank prints without the instrument."""
    trace = tmp_path_factory.mktemp("without")
    done = launch([TRAIN, "plain"], trace, library, hook=False)
    assert [rank.code for rank in done] == [0, 0], done[0].stderr
    # NVTX was not even loaded.
    assert not (done[0].directory / "range.arrows").exists()
    return [rank.stdout for rank in done]


def test_with_the_instrument(library: Path, plain_result: list[str], tmp_path: Path):
    done = launch([TRAIN, "plain"], tmp_path, library)
    assert [(rank.code, rank.stdout, rank.stderr) for rank in done] == [
        (0, stdout, "") for stdout in plain_result
    ]


@pytest.mark.parametrize("kind", SABOTAGE)
def test_with_a_broken_one(library: Path, plain_result: list[str], tmp_path: Path, kind: str):
    code = textwrap.dedent(SABOTAGE[kind]) + "print('sabotaged')\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(SITE), str(tmp_path)])
    done = launch([TRAIN, "plain"], tmp_path / "trace", library, PYTHONPATH=path)
    assert [(rank.code, rank.stdout, rank.stderr) for rank in done] == [
        (0, "sabotaged\n" + stdout, "") for stdout in plain_result
    ]
    if kind in ("every-word", "every-look-at-fsdp2"):
        assert done[0].record["faults"]["RuntimeError"] > 10


def test_without_a_tool_nothing_is_wrapped(library: Path, plain_result: list[str], tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "name = 'torch.distributed.fsdp._fully_shard._fsdp_state'\n"
        "atexit.register(lambda: print(type(sys.modules[name].torch).__name__))\n"
    )
    path = os.pathsep.join([str(SITE), str(tmp_path)])
    done = launch(
        [TRAIN, "plain"], tmp_path / "t", library, PYTHONPATH=path, NVTX_INJECTION64_PATH=""
    )
    assert [rank.stdout for rank in done] == [stdout + "module\n" for stdout in plain_result]


def test_whole_models_compile_into_the_same_graphs(library: Path, tmp_path: Path):
    """Model and optimizer compiled; the program prints its graphs and graph breaks."""
    with_hook = launch([TRAIN, "whole"], tmp_path / "with", library)
    without = launch([TRAIN, "whole"], tmp_path / "without", library, hook=False)
    assert [rank.code for rank in with_hook + without] == [0] * 4
    assert "graph breaks:" in without[0].stdout
    assert [rank.stdout for rank in with_hook] == [rank.stdout for rank in without]
    # What a compiled optimizer does cannot be seen.
    assert with_hook[0].record["steps"]["completed"] == 0


def test_a_program_may_ask_for_it_and_mark_steps_itself(library: Path, tmp_path: Path):
    done = launch([TRAIN, "explicit"], tmp_path, library, hook=False, PYTHONPATH=str(ROOT))
    assert [rank.code for rank in done] == [0, 0], done[0].stderr
    steps = done[0].ours("step ")
    # The range that the first optimizer step ended, one that it began and that never ends, and those
    # of the program.
    closed = [step.text for step in steps if step.end_ns != -1]
    assert closed == ["step 0", "step 1", "step 2"]
    assert done[0].record["steps"] == {"completed": 3, "source": "program"}


def test_the_command_line(library: Path, tmp_path: Path):
    """`gapscope trace --fsdp2 -- torchrun ...`, as a user types it."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*torchrun, "--standalone", TRAIN, "plain"]
    done = subprocess.run(
        [sys.executable, "-m", "gapscope", "trace", "--fsdp2", "-o", "trace", "--", *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **{k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            "GAPSCOPE_TRACER": str(library),
            "OMP_NUM_THREADS": "1",
        },
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    assert "2 traced processes" in done.stderr
    assert "none of them said" not in done.stderr
    records = [
        json.loads(file.read_text()) for file in (tmp_path / "trace").glob("*/instrument.json")
    ]
    assert sorted(record["rank"] for record in records) == [0, 1]
