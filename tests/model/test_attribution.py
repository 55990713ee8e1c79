"""Unit and phase of every compute op against captures in which each module was annotated."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from gapscope.ingest.pipeline import ingest

ANNOTATED = Path(__file__).parents[1] / "data" / "annotated"
CAPTURES = sorted(path.name.removesuffix(".json.gz") for path in ANNOTATED.glob("*.json.gz"))

WRONG = """
SELECT t.correlation_id, t.unit, t.phase, u.unit, u.phase, u.node
FROM truth AS t
INNER JOIN v1.device_op AS o USING (correlation_id)
LEFT JOIN v1.op_unit AS u ON o.rank = u.rank AND o.op_id = u.op_id
WHERE o.time_class = 'compute' AND (t.unit, t.phase) IS DISTINCT FROM (u.unit, u.phase)
"""


@pytest.mark.parametrize("name", CAPTURES)
def test_every_compute_op_is_in_its_unit_and_phase(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ingest([ANNOTATED / f"{name}.json.gz"], run)
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as con:
        truth = str(ANNOTATED / f"{name}.truth.csv")
        con.execute(
            "CREATE TEMP TABLE truth AS SELECT correlation_id, coalesce(unit, '') AS unit, phase "
            "FROM read_csv(?, all_varchar = true)",
            [truth],
        )
        con.execute("ALTER TABLE truth ALTER correlation_id TYPE BIGINT")
        compared = con.execute(
            "SELECT count(*) FROM truth INNER JOIN v1.device_op AS o USING (correlation_id) "
            "WHERE o.time_class = 'compute'"
        ).fetchone()
        assert compared is not None
        assert compared[0] > 200
        assert con.execute(WRONG).fetchall() == []


def test_every_configuration_is_here() -> None:
    assert set(CAPTURES) == {
        "accumulation",
        "checkpointing",
        "compiled_checkpointing",
        "explicit_prefetch",
        "reshard_false",
        "reshard_int",
        "reshard_true",
        "root_without_parameters",
    }
