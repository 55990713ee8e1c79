"""Two runs in one database: what is compared of each, and the views of `sql/pair` over both."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope._resources import read_texts
from gapscope.errors import GapscopeError
from gapscope.run import open_run
from gapscope.schema.views import View, comment, install, parse_view

if TYPE_CHECKING:
    import duckdb

    from gapscope.run import Run

Row = dict[str, Any]

SIDES = ("A", "B")

# Views that read whole steps of all ranks, and what is compared depends on them; those that read
# what is compared; those that read every op of the one rank that is shown.
_FIRST = ("pair.fact", "pair.restriction", "pair.span", "pair.program", "pair.queue")
_SECOND = ("pair.collective", "pair.kernel")
_THIRD = ("pair.wall",)


class Pair:
    """Two runs side by side, as read when it was made. Use as a context manager, or `close`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def __enter__(self) -> Pair:  # noqa: PYI034 -- typing has Self from Python 3.11 on
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def rows(self, query: str, parameters: list[Any] | None = None) -> list[Row]:
        """Rows of a query over `pair.*`."""
        import duckdb

        try:
            cursor = self._connection.execute(query, parameters or [])
            names = [column[0] for column in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except duckdb.Error as error:
            raise GapscopeError(
                "sql-error", str(error).split("\n\nLINE")[0], "report this: it is a bug in GapScope"
            ) from error


@lru_cache(maxsize=1)
def pair_views() -> tuple[View, ...]:
    """Every view of `sql/pair`, each after those that it reads."""
    return tuple(
        parse_view(file, text) for file, text in sorted(read_texts("sql", "pair", ".sql").items())
    )


def open_pair(a: Path, b: Path, *, rank: int | None = None, database: Path | None = None) -> Pair:
    """Read what two runs are compared by. `rank` is the one whose kernels and nodes are compared.

    Without it that is the rank with the longest step in B. `database` keeps what was read, with all
    views, as a DuckDB file. Raises GapscopeError.
    """
    with open_run(a) as base, open_run(b) as candidate:
        return pair_of(base, candidate, rank=rank, database=database)


def pair_of(
    base: Run, candidate: Run, *, rank: int | None = None, database: Path | None = None
) -> Pair:
    """`open_pair` of two runs that are open; they stay so."""
    import duckdb

    runs = dict(zip(SIDES, (base, candidate), strict=True))
    con = duckdb.connect() if database is None else _create(database)
    con.execute("SET enable_progress_bar = false")
    pair = Pair(con)
    try:
        _fill(pair, con, runs, rank)
    except BaseException:
        pair.close()
        raise
    return pair


def run_names(a: Path, b: Path) -> tuple[str, str]:
    """What two runs are called: no more of their paths than tells them apart."""
    own, other = a.resolve(), b.resolve()
    if own == other or own.name != other.name:
        return own.name, other.name
    return f"{own.parent.name}/{own.name}", f"{other.parent.name}/{other.name}"


def _fill(
    pair: Pair, con: duckdb.DuckDBPyConnection, runs: dict[str, Run], rank: int | None
) -> None:
    con.execute("CREATE SCHEMA pair")
    con.execute("CREATE TABLE pair.shown (projection VARCHAR, rank BIGINT)")
    views = {view.name: view for view in pair_views()}
    for view in views.values():
        if view.materialise == "side":
            columns = ", ".join(f'"{column.name}" {column.type}' for column in view.columns)
            con.execute(f"CREATE TABLE {view.name} (side VARCHAR, {columns})")
            comment(con, view, "TABLE")
    _load(con, runs, [views[name] for name in _FIRST])
    projection = _projection(pair)
    con.execute("INSERT INTO pair.shown VALUES (?, NULL)", [projection])
    for run in runs.values():
        run.sql(f"SET VARIABLE gapscope_projection = '{projection}'")
    _load(con, runs, [views[name] for name in _SECOND])
    for view in views.values():
        if view.materialise == "no":
            install(con, view)
            comment(con, view)
    shown = _shown(pair, rank)
    if shown is None:
        return
    con.execute("UPDATE pair.shown SET rank = ?", [shown])
    for run in runs.values():
        run.sql(f"SET VARIABLE gapscope_rank = {shown}")
    _load(con, runs, [views[name] for name in _THIRD])


def _load(con: duckdb.DuckDBPyConnection, runs: dict[str, Run], views: list[View]) -> None:
    for side, run in runs.items():
        for view in views:
            con.register("loaded", run.sql(view.query).to_arrow())
            con.execute(f"INSERT INTO {view.name} SELECT ?, * FROM loaded", [side])
            con.unregister("loaded")


def _projection(pair: Pair) -> str:
    """Steps where both runs have some that count on one rank, else whole captures."""
    both = pair.rows(
        "SELECT rank FROM pair.span WHERE projection = 'device' AND NOT is_boundary "
        "GROUP BY rank HAVING count(DISTINCT side) = 2 LIMIT 1"
    )
    return "device" if both else "capture"


def _shown(pair: Pair, rank: int | None) -> int | None:
    compared = pair.rows(
        "SELECT subject FROM pair.step_delta WHERE subject IS NOT NULL "
        "ORDER BY b_mean DESC, subject"
    )
    ranks = [row["subject"] for row in compared]
    if rank is None:
        return ranks[0] if ranks else None
    if ranks and rank not in ranks:
        raise GapscopeError(
            "no-rank",
            f"rank {rank} has no steps that count in both runs",
            f"ranks that have: {', '.join(map(str, sorted(ranks)[:16]))}",
        )
    return rank if ranks else None


def _create(database: Path) -> duckdb.DuckDBPyConnection:
    import duckdb

    from gapscope.schema.catalog import STORAGE_VERSION, quoted

    con = duckdb.connect()
    con.execute(f"ATTACH {quoted(database)} AS kept (STORAGE_VERSION '{STORAGE_VERSION}')")
    con.execute("USE kept")
    return con
