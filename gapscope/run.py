"""A run directory opened for reading: typed accessors over the contract views."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from gapscope.errors import GapscopeError
from gapscope.remote import fetch_run, url_of

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from gapscope.report.document import Document

DEFAULT_RUN = "gapscope.run"
_MISSING = re.compile(r"Table with name (\w+) does not exist")


class Run:
    """An ingested run. Times are integer nanoseconds, `rank` is the global rank.

    Every accessor returns a polars frame whose columns are documented by `gapscope sql RUN
    --show VIEW` and in `sql/README.md`; rows come in key order. Use as a context manager, or
    call `close`.
    """

    def __init__(
        self, path: Path, connection: duckdb.DuckDBPyConnection, manifest: dict[str, Any]
    ) -> None:
        self.path = path
        self.manifest = manifest
        self._connection = connection
        # The copy of a run that was fetched; it goes away with this object.
        self._fetched: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Run:  # noqa: PYI034 -- typing has Self from Python 3.11 on
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database; the run on disk is never written to."""
        self._connection.close()
        if self._fetched is not None:
            self._fetched.cleanup()

    def sql(
        self, query: str, parameters: list[Any] | None = None, *, rank: int | None = None
    ) -> pl.DataFrame:
        """Rows of a query, as a polars frame.

        Parameters are bound to `?`. With `rank`, only the files of that rank are opened, which is
        faster where there are many: for a query that asks about no other. Raises GapscopeError
        `sql-error` with DuckDB's message, and `run-too-old` where this GapScope has a view that the
        one which made the run did not.
        """
        if rank is None:
            return self._sql(query, parameters)
        self._connection.execute(f"SET VARIABLE gapscope_only_rank = {int(rank)}")
        try:
            return self._sql(query, parameters)
        finally:
            self._connection.execute("RESET VARIABLE gapscope_only_rank")

    def _sql(self, query: str, parameters: list[Any] | None) -> pl.DataFrame:
        import duckdb
        import polars as pl

        try:
            relation = self._connection.sql(query, params=parameters or None)
            # Statements such as SET have no rows.
            frame: pl.DataFrame = pl.DataFrame() if relation is None else relation.pl()
        except duckdb.Error as error:
            missing = _MISSING.search(str(error))
            if missing is not None and _is_known(missing[1]):
                raise GapscopeError(
                    "run-too-old",
                    f"`{self.path}` was ingested by an older GapScope, without `v1.{missing[1]}`",
                    "ingest again: `gapscope ingest DIRECTORY -f`",
                ) from error
            hint = "list views: `gapscope sql RUN --list`"
            if isinstance(error, duckdb.IOException):
                hint = f"was the run moved? `gapscope ingest --relink {self.path}`"
            raise GapscopeError("sql-error", str(error).split("\n\nLINE")[0], hint) from error
        return frame

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Rows of a query, each by column name."""
        return self.sql(query).to_dicts()

    def view(self, name: str) -> pl.DataFrame:
        """All rows of a view of schema `v1`, in the order of its grain."""
        from gapscope.schema.views import view_named

        view = view_named(name)
        order = ", ".join(f'"{column}"' for column in view.grain) or "ALL"
        return self.sql(f"FROM {view.name} ORDER BY {order}")

    def ranks(self) -> pl.DataFrame:
        """One row a rank: host, device, source, versions, where the rank number comes from."""
        return self.sql("FROM v1.rank ORDER BY rank")

    def steps(self) -> pl.DataFrame:
        """One row a rank and step: host and device window [ns], boundary flag and its reason."""
        return self.view("step")

    def step_budget(self, projection: str | None = None) -> pl.DataFrame:
        """One row a rank, projection and step: unions and the three-way split [ns].

        `projection` is `host`, `device`, `capture` or None for all three.
        """
        if projection is None:
            return self.view("step_budget")
        if projection not in ("host", "device", "capture"):
            raise GapscopeError(
                "unknown-projection",
                f"`{projection}` is no projection",
                "use host, device or capture",
            )
        return self.sql(
            "FROM v1.step_budget WHERE projection = ? ORDER BY rank, step_id", [projection]
        )

    def ops(self, rank: int | None = None) -> pl.DataFrame:
        """One row a device op with class, launch and context; all ranks or one."""
        query = "FROM v1.op WHERE ? IS NULL OR rank = ? ORDER BY rank, op_id"
        return self.sql(query, [rank, rank], rank=rank)

    def compute_gaps(self, rank: int | None = None) -> pl.DataFrame:
        """One row a maximal interval without compute, with the op that ended it and its split."""
        return self.sql(
            "FROM v1.compute_gap WHERE ? IS NULL OR rank = ? ORDER BY rank, gap_id",
            [rank, rank],
            rank=rank,
        )

    def kernels(self) -> pl.DataFrame:
        """One row a rank and kernel name: class, rule, count, work volume [ns]."""
        return self.view("kernel_inventory")

    def quality(self) -> pl.DataFrame:
        """One row a check: status ok, info, warn or fail; detail; what it forbids to say."""
        return self.view("capture_quality")

    def report(self) -> Document:
        """The report document of this run; give it to a renderer of `gapscope.render`."""
        from gapscope.report.build import build

        return build(self)


def _is_known(name: str) -> bool:
    """Whether every run that this GapScope makes has a relation of that name."""
    from gapscope.schema.results import RESULT_TABLES
    from gapscope.schema.tables import TABLES
    from gapscope.schema.views import all_views

    views = (view.short_name for view in all_views())
    return name in TABLES or name in RESULT_TABLES or name in views


def open_run(path: str | Path = DEFAULT_RUN) -> Run:
    """Open a run directory (or its `run.duckdb`) read-only; one at a URL is fetched first.

    Raises GapscopeError `no-run` when there is none and `run-too-new` when a newer GapScope
    wrote it.
    """
    import duckdb

    from gapscope.schema.catalog import SORTED_ASOF
    from gapscope.schema.tables import SCHEMA_VERSION

    url = url_of(path)
    if url is not None:
        fetched = tempfile.TemporaryDirectory(prefix="gapscope-")
        local = Path(fetched.name) / PurePosixPath(url).name
        fetch_run(url, local)
        run = open_run(local)
        run._fetched = fetched  # noqa: SLF001 -- its own module
        return run
    directory = Path(path)
    if directory.name == "run.duckdb":
        directory = directory.parent
    database = directory / "run.duckdb"
    if not database.is_file():
        raise GapscopeError(
            "no-run", f"no run at `{path}`", "make one: `gapscope ingest DIRECTORY`"
        )
    try:
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GapscopeError(
            "broken-run",
            f"`{directory}/manifest.json` cannot be read",
            "ingest again: `gapscope ingest DIRECTORY -f`",
        ) from error
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(version, int):
        raise GapscopeError(
            "broken-run",
            f"`{directory}/manifest.json` is not the manifest of a run",
            "ingest again: `gapscope ingest DIRECTORY -f`",
        )
    if version > SCHEMA_VERSION:
        raise GapscopeError(
            "run-too-new",
            f"`{directory}` has schema {version}, this is {SCHEMA_VERSION}",
            "upgrade: `pip install -U gapscope`",
        )
    try:
        connection = duckdb.connect(str(database), read_only=True)
    except duckdb.Error as error:
        raise GapscopeError(
            "broken-run",
            f"`{database}` cannot be opened",
            "ingest again: `gapscope ingest DIRECTORY -f`",
        ) from error
    location = str(directory.resolve()).replace("'", "''")
    connection.execute("SET enable_progress_bar = false")
    connection.execute(SORTED_ASOF)
    connection.execute(f"SET VARIABLE gapscope_run = '{location}'")
    return Run(directory, connection, manifest)
