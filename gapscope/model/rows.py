"""How the model reads a run that is finished, without knowing what opened it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import polars as pl


class Rows(Protocol):
    """Whatever answers queries: an opened run."""

    def sql(self, query: str, parameters: list[Any] | None = None) -> pl.DataFrame:
        """Rows of a query; parameters are bound to `?`."""
        ...
