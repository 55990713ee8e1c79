"""CPU seconds and bytes of each stage of an ingest, in one process.

`python experiments/scale/stages.py CAPTURES WORK` ingests; with a SPEC (`.toml`) it simulates.
"""

from __future__ import annotations

import functools
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gapscope.schema.catalog
from gapscope.ingest import pipeline
from gapscope.simulate.run import write_run

_STAGES = (
    (pipeline, "_stage_all", "read"),
    (pipeline, "place", "place"),
    (pipeline, "_derive_all", "views of ranks"),
    (gapscope.schema.catalog, "fill", "tables of the run"),
    (pipeline, "_run_model", "model"),
)


def timed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        begin = time.process_time()
        try:
            return function(*args, **kwargs)
        finally:
            print(f"{name:18} {time.process_time() - begin:8.2f} CPU s", flush=True)

    return call


def size_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def main(source: Path, out: Path) -> None:
    for module, function, name in _STAGES:
        setattr(module, function, timed(getattr(module, function), name))
    shutil.rmtree(out, ignore_errors=True)
    if source.suffix == ".toml":
        result = write_run(source, out, workers=1)
    else:
        result = pipeline.ingest([source], out, workers=1)
    ops = sum(counts["gpu_op"] for counts in result.rows.values())
    calls = sum(counts["api_call"] for counts in result.rows.values())
    print(f"ranks {len(result.rows)}, ops {ops}, calls {calls}")
    for part in ("data", "derived", "run.duckdb"):
        path = out / part
        count = size_bytes(path) if path.is_dir() else path.stat().st_size
        print(f"{part:18} {count / 1e6:8.2f} MB, {count / ops:8.1f} bytes an op")
    print(f"files {sum(1 for file in out.rglob('*') if file.is_file())}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
