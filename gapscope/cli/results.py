"""What commands that read results of the dependency model have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError

if TYPE_CHECKING:
    from gapscope.run import Run

_NEWEST = "what_if_step"


def require_view(run: Run, name: str) -> None:
    """Refuse a run of a GapScope that did not have this view yet."""
    if not _has(run, name):
        raise GapscopeError(
            "run-too-old",
            f"`{run.path}` was ingested by an older GapScope, without `v1.{name}`",
            "ingest again: `gapscope ingest DIRECTORY -f`",
        )


def require_model(run: Run) -> None:
    """Refuse a run that was ingested before the model was there."""
    if not _has(run, _NEWEST):
        raise GapscopeError(
            "no-model",
            f"`{run.path}` was ingested by an older GapScope, without the dependency model",
            "ingest again: `gapscope ingest DIRECTORY -f`",
        )


def _has(run: Run, name: str) -> bool:
    query = "SELECT 1 FROM information_schema.tables WHERE table_schema = 'v1' AND table_name = ?"
    return not run.sql(query, [name]).is_empty()
