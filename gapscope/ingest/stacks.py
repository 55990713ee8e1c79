"""`--stacks`: call stacks of launches from a capture of their own, put beside the timing one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapscope.errors import GapscopeError
from gapscope.ingest.frames import without_directories
from gapscope.schema.catalog import PARQUET_OPTIONS
from gapscope.schema.tables import TABLES

if TYPE_CHECKING:
    import duckdb

_NEEDED = ("rank", "thread", "ordinal", "stack")
_HINT = "columns: rank, thread, ordinal, stack (frames outermost first, `;` between), name if known"


def check_file(file: Path) -> None:
    """Refuse a file that is not there, before captures are read. Raises GapscopeError."""
    if not file.is_file():
        raise GapscopeError("bad-stacks", f"`{file}` is no file", _HINT)


def place_stacks(file: Path, work: Path, rows: dict[int, dict[str, int]]) -> None:
    """Add the stacks of each captured rank to `data/call_stack/rank=N/`, and count them.

    Raises GapscopeError `bad-stacks` for a file that is no such table, or that names a rank which
    was not captured.
    """
    import duckdb

    with duckdb.connect() as con:
        try:
            _load(con, file)
        except duckdb.Error as error:
            said = str(error).splitlines()[0]
            raise GapscopeError("bad-stacks", f"`{file}`: {said}", _HINT) from error
        found = [row[0] for row in con.execute("SELECT DISTINCT rank FROM given").fetchall()]
        unknown = sorted(set(found) - set(rows))
        if unknown:
            raise GapscopeError(
                "bad-stacks",
                f"`{file}` has stacks of rank {unknown[0]}, which no capture here is",
                "stacks belong to the ranks of the timing captures",
            )
        for rank in found:
            rows[rank]["call_stack"] = _write(con, rank, work / "data" / "call_stack")


def _load(con: duckdb.DuckDBPyConnection, file: Path) -> None:
    """The table `given`, one row a launch, stacks without directories."""
    name = str(file)
    is_parquet = file.suffix.lower() in (".parquet", ".pq")
    source = con.read_parquet(name) if is_parquet else con.read_csv(name, all_varchar=True)
    missing = [column for column in _NEEDED if column not in source.columns]
    if missing:
        raise GapscopeError("bad-stacks", f"`{file}` has no column `{missing[0]}`", _HINT)
    con.register("source", source)
    kernel = "name::VARCHAR" if "name" in source.columns else "NULL::VARCHAR"
    con.execute("CREATE TABLE frames (stack VARCHAR, kept VARCHAR)")
    texts: list[tuple[Any, ...]] = con.execute("SELECT DISTINCT stack FROM source").fetchall()
    pairs = [(text, _kept(text)) for (text,) in texts if text is not None]
    if pairs:
        con.executemany("INSERT INTO frames VALUES (?, ?)", pairs)
    con.execute(
        "CREATE TABLE given AS SELECT s.rank::BIGINT AS rank, s.thread::BIGINT AS thread, "
        f"s.ordinal::BIGINT AS ordinal, {kernel} AS name, f.kept AS stack "
        "FROM source AS s INNER JOIN frames AS f ON s.stack = f.stack"
    )
    twice = con.execute(
        "SELECT rank, thread, ordinal FROM given GROUP BY ALL HAVING count(*) > 1 LIMIT 1"
    ).fetchone()
    if twice:
        rank, thread, ordinal = twice
        raise GapscopeError(
            "bad-stacks",
            f"`{file}` has launch {ordinal} of thread {thread}, rank {rank}, twice",
            "a launch has one stack; number those of each thread from 0",
        )


def _kept(stack: str) -> str:
    return ";".join(without_directories(frame) for frame in stack.split(";"))


def _write(con: duckdb.DuckDBPyConnection, rank: int, table: Path) -> int:
    target = table / f"rank={rank}" / "stacks.parquet"
    columns = ", ".join(f'"{column.name}"' for column in TABLES["call_stack"].columns)
    con.execute(
        f"COPY (SELECT {columns} FROM given WHERE rank = {rank} ORDER BY thread, ordinal) "
        f"TO '{str(target).replace(chr(39), chr(39) * 2)}' ({PARQUET_OPTIONS})"
    )
    counted = con.execute(f"SELECT count(*) FROM given WHERE rank = {rank}").fetchone()
    return int(counted[0]) if counted else 0
