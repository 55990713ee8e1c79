"""What commands that read results of the dependency model have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError

if TYPE_CHECKING:
    from gapscope.run import Run

_NEWEST = "what_if_step"


def require_model(run: Run) -> None:
    """Refuse a run that was ingested before the model was there."""
    query = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'v1' AND table_name = ?"
    if run.sql(query, [_NEWEST]).is_empty():
        raise GapscopeError(
            "no-model",
            f"`{run.path}` was ingested by an older GapScope, without the dependency model",
            "ingest again: `gapscope ingest DIRECTORY -f`",
        )
