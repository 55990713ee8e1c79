"""Captures of hardware metrics: read beside the ranks, reduced to operators, joined by their names.

Sampling slows the program down and needs a run of its own, so no op of such a capture is an op of
the timing captures. What is kept is what `v1.class_metric` says of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.errors import GapscopeError
from gapscope.ingest.discover import discover
from gapscope.ingest.stage import Staged, stage
from gapscope.remote import url_of
from gapscope.schema.catalog import IngestNote, columns, configure, exactly, quoted
from gapscope.schema.results import RESULT_TABLES
from gapscope.schema.tables import TABLES
from gapscope.schema.views import View, all_views, install, view_named

if TYPE_CHECKING:
    import duckdb

_OPTION = "capture them with `nsys profile -t cuda --gpu-metrics-devices=all`"
_RESULT = RESULT_TABLES["captured_metric"]

# A capture has one clock: its devices need none of what relates the clocks of ranks.
_ONE_CLOCK = (
    "CREATE TABLE v1.rank_clock (rank BIGINT, offset_ns BIGINT, residual_ns BIGINT, "
    "method VARCHAR, jump_ns BIGINT)"
)

# Mean distance, in percentage points, of sampled activity from the device ops' own; 1.7 was seen.
_LARGEST_ERROR = 10.0


@dataclass
class MetricsCaptures:
    """Rows of `captured_metric`, and notes on the run."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    notes: list[IngestNote] = field(default_factory=list)

    def read(self, files: Sequence[Path], work: Path, memory_limit: str | None) -> None:
        """Read captures of hardware metrics; what they need on the way goes below `work`.

        Raises GapscopeError for one that holds no samples, or no device ops to join them to.
        """
        for number, file in enumerate(files):
            if url_of(file) is not None:
                raise GapscopeError(
                    "usage", f"`--metrics {file}` is not on this machine", "fetch it, name the copy"
                )
            found, _ = discover([file])
            if len(found) > 1 or found[0].format != "nsys":
                raise GapscopeError(
                    "no-metrics", f"`{file}` is no single capture of Nsight Systems", _OPTION
                )
            place = work / f"metrics-{number}"
            self._reduce(stage(found[0], place), work, memory_limit)
            shutil.rmtree(place)

    def install(self, database: Path) -> None:
        """Put the rows into the run."""
        import duckdb

        if not self.rows:
            return
        marks = ", ".join("?" for _ in _RESULT.columns)
        with duckdb.connect(str(database)) as con:
            con.executemany(f"INSERT INTO v1.captured_metric VALUES ({marks})", self.rows)

    def _reduce(self, staged: Staged, work: Path, memory_limit: str | None) -> None:
        import duckdb

        label = staged.found.label
        con = duckdb.connect()
        try:
            configure(con, 1, memory_limit, work / "spill")
            devices = _load(con, staged)
            if not staged.rows.get("metric_sample"):
                raise GapscopeError("no-metrics", f"`{label}` holds no GPU metrics", _OPTION)
            if not devices:
                raise GapscopeError(
                    "no-metrics",
                    f"`{label}` holds no device op of a sampled device to say what ran",
                    _OPTION,
                )
            con.execute(_ONE_CLOCK)
            for view in _needed(view_named("class_metric")):
                if view.materialise == "no":
                    install(con, view)
                else:
                    con.execute(f"CREATE TABLE {view.name} AS {view.query}")
            own = {
                "source_path": quoted(label),
                "source_digest": quoted(staged.digest),
                "device": "c.rank",
                "period_ns": "a.period_ns",
            }
            kept = ", ".join(own.get(c.name, f"c.{c.name}") for c in _RESULT.columns)
            self.rows += con.execute(
                f"SELECT {kept} FROM v1.class_metric AS c "
                "INNER JOIN v1.metric_alignment AS a ON c.rank = a.rank ORDER BY ALL"
            ).fetchall()
            self.notes += _notes(con, label)
        finally:
            con.close()


def _load(con: duckdb.DuckDBPyConnection, staged: Staged) -> list[int]:
    """Canonical tables of the capture, each sampled device a rank: whatever ran on it counts."""
    con.execute("CREATE SCHEMA v1")
    for table in TABLES.values():
        file = staged.directory / f"{table.name}.parquet"
        names = columns(table)
        if file.exists() and table.name != "rank":
            source = f"read_parquet({exactly(staged.directory, file.name)})"
            con.execute(f"CREATE TABLE whole_{table.name} AS SELECT {names} FROM {source}")
        else:
            kinds = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
            con.execute(f"CREATE TABLE whole_{table.name} ({kinds})")
    con.execute(
        "CREATE TABLE sampled AS SELECT DISTINCT device::BIGINT AS rank, device FROM whole_gpu_op "
        "WHERE device IN (SELECT device FROM whole_metric_sample)"
    )
    for table in TABLES.values():
        of_device = any(column.name == "device" for column in table.columns)
        # Ranges of the host name no device.
        on = "coalesce(t.device = s.device, TRUE)" if of_device else "TRUE"
        listed = ", ".join(f't."{column.name}"' for column in table.columns)
        con.execute(
            f'CREATE VIEW v1."{table.name}" AS SELECT s.rank, {listed} '
            f"FROM whole_{table.name} AS t INNER JOIN sampled AS s ON {on}"
        )
    con.execute("INSERT INTO whole_rank BY NAME SELECT DISTINCT device FROM sampled")
    return [device for (device,) in con.execute("SELECT device FROM sampled").fetchall()]


def _needed(last: View) -> list[View]:
    """A view and those it is made from but clocks, in the order in which they can be made."""
    by_name = {view.name: view for view in all_views() if view.name != "v1.rank_clock"}
    wanted = {last.name}
    for view in reversed(all_views()):
        if view.name in wanted:
            wanted.update(name for name in view.depends_on if name in by_name)
    return [view for view in all_views() if view.name in wanted]


def _notes(con: duckdb.DuckDBPyConnection, label: str) -> list[IngestNote]:
    """What was sampled, how well stamps fit, and which metrics of interest are not there."""
    rows = con.execute(
        "SELECT rank, interval_count, period_ns, metric, after_error, before_error, "
        "is_begin_stamped FROM v1.metric_alignment ORDER BY rank"
    ).fetchall()
    notes: list[IngestNote] = []
    for device, count, period, metric, after, before, begins in rows:
        detail = f"{count} samples of device {device}, one every {period} ns"
        forbids = None
        if metric is None:
            detail += "; no activity metric tells whether a stamp begins or ends a sample: begins"
            forbids = "metrics of ops that are not much longer than a sample"
        else:
            error = min(after, before)
            detail += (
                f"; {metric} is {error:.1f} points off the busy share of the time that a stamp "
                f"{'begins' if begins else 'ends'}, {max(after, before):.1f} of the other"
            )
            if error > _LARGEST_ERROR:
                forbids = "metrics per class: samples and device ops do not fit each other"
        status = "info" if forbids is None else "warn"
        notes.append((f"metrics_capture:{label}:{device}", status, detail, forbids))
    return notes
