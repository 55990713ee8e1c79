"""Tile an Nsight Systems export to a larger one: tile.py SOURCE.sqlite TARGET.sqlite TIMES"""

from __future__ import annotations

import shutil
import sqlite3
import sys

SHIFTED = {"start", "end", "timestamp", "rawTimestamp"}
NUMBERED = {"correlationId", "eventSyncId"}


def main(source: str, target: str, times: int) -> None:
    """Repeat every activity table, shifted in time, with fresh correlation and event sync ids."""
    shutil.copy(source, target)
    con = sqlite3.connect(target)
    con.execute("PRAGMA journal_mode = OFF")
    con.execute("PRAGMA synchronous = OFF")
    tables = [
        name
        for (name,) in con.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if name.startswith("CUPTI_ACTIVITY_KIND_") or name == "NVTX_EVENTS"
    ]
    span, ids = con.execute(
        "SELECT max(end) - min(start), max(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME"
    ).fetchone()
    for table in tables:
        columns = [row[1] for row in con.execute(f"PRAGMA table_info({table})")]
        last = con.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0]
        for copy in range(1, times):
            values = [
                f"{c} + {copy * (span + 10**6)}"
                if c in SHIFTED
                else f"{c} + {copy * (ids + 1)}"
                if c in NUMBERED
                else c
                for c in columns
            ]
            con.execute(
                f"INSERT INTO {table} SELECT {', '.join(values)} FROM {table} WHERE rowid <= {last}"
            )
    con.commit()
    con.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
