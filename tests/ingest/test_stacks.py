"""Call stacks: of a capture of their own, and Python calls of a trace; no path of a user stays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from gapscope.errors import GapscopeError
from gapscope.ingest.frames import without_directories
from gapscope.ingest.pipeline import ingest
from gapscope.run import open_run

from .nsys_export import CANARY, call, full_export, kernel, write_sqlite

if TYPE_CHECKING:
    from gapscope.run import Run

GOOD = f"""\
rank,thread,ordinal,name,stack
3,40,0,void gemm<float>(float*),/home/someone/{CANARY}/train.py(3): main;/opt/v/lib/python3.11/site-packages/torch/nn.py(9): linear
3,40,1,void other(int),/home/someone/train.py(4): late
3,40,7,,/home/someone/train.py(5): never
"""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rank 3 launches two kernels on one thread."""
    tables = full_export()
    tables["CUPTI_ACTIVITY_KIND_KERNEL"] = [
        kernel(100, 200, correlationId=11),
        kernel(300, 400, correlationId=21),
    ]
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = [
        call(50, 60, correlationId=11),
        call(250, 260, correlationId=21),
    ]
    for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        del tables[table]
    del tables["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"]
    return write_sqlite(tmp_path_factory.mktemp("capture") / "one.sqlite", tables)


def _stacks(directory: Path, text: str) -> Path:
    file = directory / "stacks.csv"
    file.write_text(text)
    return file


def _linked(run: Run) -> list[dict[str, object]]:
    return run.sql("SELECT ordinal, is_checked, stack FROM v1.launch_stack ORDER BY 1").to_dicts()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_stacks_of_another_capture_meet_their_launch(
    capture: Path, tmp_path: Path, kind: str
) -> None:
    file = _stacks(tmp_path, GOOD)
    if kind == "parquet":
        table = tmp_path / "stacks.parquet"
        duckdb.sql(f"COPY (FROM '{file}') TO '{table}'")
        file = table
    result = ingest([capture], tmp_path / "gapscope.run", stacks=file, workers=1)
    assert result.rows[3]["call_stack"] == 3
    with open_run(result.out) as run:
        # The second one names a kernel that this launch did not start.
        assert _linked(run) == [
            {
                "ordinal": 0,
                "is_checked": True,
                "stack": "train.py(3): main;torch/nn.py(9): linear",
            },
            {"ordinal": 1, "is_checked": None, "stack": None},
        ]
        (link,) = run.sql("FROM v1.stack_link").to_dicts()
        assert (link["launch_count"], link["linked_count"], link["given_count"]) == (2, 1, 3)
    everything = b"".join(path.read_bytes() for path in result.out.rglob("*") if path.is_file())
    assert CANARY.encode() not in everything


def test_without_stacks_every_run_has_the_table_and_a_rate_of_nothing(
    capture: Path, tmp_path: Path
) -> None:
    with open_run(ingest([capture], tmp_path / "gapscope.run", workers=1).out) as run:
        assert run.sql("SELECT link_rate FROM v1.stack_link").to_dicts() == [{"link_rate": 0.0}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank,thread,stack\n3,40,a\n", "no column `ordinal`"),
        ("rank,thread,ordinal,stack\n5,40,0,a\n", "stacks of rank 5, which no capture"),
        ("rank,thread,ordinal,stack\n3,40,0,a\n3,40,0,b\n", "launch 0 of thread 40, rank 3, twice"),
        ("rank,thread,ordinal,stack\n3,main,0,a\n", "main"),
    ],
)
def test_a_table_that_is_none_of_stacks_leaves_no_run(
    capture: Path, tmp_path: Path, text: str, said: str
) -> None:
    out = tmp_path / "gapscope.run"
    with pytest.raises(GapscopeError) as caught:
        ingest([capture], out, stacks=_stacks(tmp_path, text), workers=1)
    assert caught.value.slug == "bad-stacks"
    assert said in caught.value.message
    assert not out.exists()


def test_a_missing_file_is_said_before_captures_are_read(tmp_path: Path) -> None:
    with pytest.raises(GapscopeError, match="is no file"):
        ingest([tmp_path / "nothing"], tmp_path / "run", stacks=tmp_path / "none.csv", workers=1)


@pytest.mark.parametrize(
    ("frame", "kept"),
    [
        ("/home/me/run/train.py(3): main", "train.py(3): main"),
        ("/home/John Doe/my run/train.py(3): main", "train.py(3): main"),
        (r"C:\Users\me\train.py(3): main", "train.py(3): main"),
        ("~/x/train.py(3): main", "train.py(3): main"),
        ("../secret/train.py(3): main", "train.py(3): main"),
        ("torch/nn/modules/module.py(1501): _call", "torch/nn/modules/module.py(1501): _call"),
        ("/v/lib/python3.11/site-packages/torch/x.py(1): f", "torch/x.py(1): f"),
        ("/usr/lib/python3.11/threading.py(1): run", "threading.py(1): run"),
        ("main (/home/me/train.py:12)", "main (train.py:12)"),
        ('File "/home/me/train.py", line 3, in main', 'File "train.py", line 3, in main'),
        ("<built-in method open of /home/me/x>", "<built-in method open of x>"),
        ("at::native::gemm<float>(int)", "at::native::gemm<float>(int)"),
    ],
)
def test_frames_keep_packages_and_lose_places(frame: str, kept: str) -> None:
    assert without_directories(frame) == kept
