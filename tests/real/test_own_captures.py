"""The captures that ship with the tests are sound runs, each for what it is."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from gapscope.ingest.pipeline import ingest

from .sound import assert_sound, one

ROOT = Path(__file__).resolve().parents[2]
CAPTURES = sorted(
    (
        *(ROOT / "gapscope" / "sample").glob("*.json.gz"),
        *(ROOT / "tests" / "data" / "annotated").glob("*.json.gz"),
        *(ROOT / "tests" / "data" / "nsys_stats").glob("*.sqlite.gz"),
    )
)


@pytest.mark.parametrize("capture", CAPTURES, ids=[path.name.split(".")[0] for path in CAPTURES])
def test_a_capture_is_a_sound_run(capture: Path, tmp_path: Path) -> None:
    out = ingest([capture], tmp_path / "run", workers=1).out
    with duckdb.connect(str(out / "run.duckdb"), read_only=True) as con:
        assert_sound(con)
        assert one(con, "SELECT count(*) FROM v1.step_budget WHERE compute_ns > 0") > 0
        waits = one(con, "SELECT count(DISTINCT wait_id) FROM v1.event_edge WHERE is_recorded")
        resolved = one(
            con,
            "SELECT count(DISTINCT wait_id) FROM v1.event_edge WHERE producer_op_id IS NOT NULL",
        )
        if capture.name == "n_base_step1.sqlite.gz":
            # One step out of many: what three waits wait for ran before it.
            assert (waits, resolved) == (115, 112)
        else:
            assert resolved >= 0.98 * waits
