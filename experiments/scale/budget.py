"""Time and peak memory from canonical Parquet to the budget of one rank.

Materialises what `v1.window_budget` depends on, in the way `gapscope ingest` does.
Usage: budget.py DIRECTORY  (made by generate.py)
"""

from __future__ import annotations

import resource
import shutil
import sys
import time
from pathlib import Path

from gapscope.schema import derive, views


def main(directory: Path) -> None:
    """Print seconds per view, the total and the peak resident memory."""
    named = {view.name: view for view in views.all_views()}
    needed: set[str] = set()

    def need(name: str) -> None:
        if name in named and name not in needed:
            needed.add(name)
            for upstream in named[name].depends_on:
                need(upstream)

    need("v1.window_budget")
    ordered = tuple(view for view in views.all_views() if view.name in needed)
    derive.all_views = lambda: ordered
    target = directory / "derived"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    begin = time.perf_counter()
    audits = derive.derive_ranks(directory, {0: target}, {}, 2, "7GB")
    seconds = time.perf_counter() - begin
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    failed = [audit for audit in audits if audit[3]]
    print(f"views {len(ordered)}  seconds {seconds:.1f}  peak MiB {peak_mib:.0f}  failed {failed}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
