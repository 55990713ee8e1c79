"""`gapscope compare`: two runs against each other, after asking whether that can be done."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapscope.cli import files, output
from gapscope.cli.options import Force, Json
from gapscope.errors import EXIT_INCONCLUSIVE, GapscopeError

if TYPE_CHECKING:
    from gapscope.compare.document import Comparison

_DATABASE = ".duckdb"


class Format(str, Enum):
    """Renderers by the name that `--format` takes."""

    TABLE = "table"
    MARKDOWN = "md"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


_SUFFIXES = {
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".md": Format.MARKDOWN,
    ".json": Format.JSON,
    ".csv": Format.CSV,
    ".txt": Format.TABLE,
}


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="The base: a run.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="What is compared with it: a run.")],
    rank: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Rank whose parts, nodes and kernels to show; else the slowest of B.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to .html, .md, .json, .csv, .txt, or .duckdb: all of it for SQL.",
        ),
    ] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="Of stdout, or of FILE whatever its suffix.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare two runs: what differs, by how much, how sure, and which parts make it up.

    Whether they may be compared comes first: workload, ranks, steps, capture. Differences are B
    less A, a step. Exit code 3 where they may not be compared: the reasons are in the answer.

    Example: gapscope compare before.run after.run -o compare.html
    """
    if as_json and (format_ not in (None, Format.JSON) or out is not None):
        raise GapscopeError("usage", "`--json` goes alone", "drop `--format` and `-o`")
    is_database = out is not None and format_ is None and out.suffix.lower() == _DATABASE
    chosen = Format.JSON if as_json else format_ or _format_of(out)
    if out is not None:
        files.check_free(out, force=force)

    from gapscope.compare.build import build
    from gapscope.pair import open_pair, run_names

    if out is not None and is_database:
        with (
            files.atomic(out) as temporary,
            open_pair(a, b, rank=rank, database=temporary) as pair,
        ):
            document = build(pair, *run_names(a, b))
    else:
        with open_pair(a, b, rank=rank) as pair:
            document = build(pair, *run_names(a, b))
    if out is None:
        output.data(render(document, chosen))
    else:
        if not is_database:
            files.write_text(out, render(document, chosen))
        output.say(document.headline.text)
        output.data(str(out))
    if not document.is_comparable:
        raise GapscopeError(
            "not-comparable",
            f"`{a}` and `{b}` may not be compared: {_forbidding(document)}",
            "compare runs of the same work on as many ranks",
            EXIT_INCONCLUSIVE,
        )


def render(document: Comparison, chosen: Format) -> str:
    """The comparison in one format."""
    from gapscope.render import (
        comparison_csv,
        comparison_html,
        comparison_json,
        comparison_markdown,
        comparison_text,
    )

    if chosen is Format.HTML:
        return comparison_html.render(document)
    if chosen is Format.MARKDOWN:
        return comparison_markdown.render(document)
    if chosen is Format.JSON:
        return comparison_json.render(document)
    if chosen is Format.CSV:
        return comparison_csv.render(document)
    return comparison_text.render(document)


def _forbidding(document: Comparison) -> str:
    items = [check.item for check in document.checks if check.verdict == "forbids"]
    return ", ".join(items) or "no step has all ranks that both have"


def _format_of(out: Path | None) -> Format:
    if out is None or out.suffix.lower() == _DATABASE:
        return Format.TABLE
    files.check_no_directory(out)
    chosen = _SUFFIXES.get(out.suffix.lower())
    if chosen is None:
        raise GapscopeError(
            "unknown-format",
            f"`{out}` does not say a format",
            "add `--format html|md|json|csv|table`",
        )
    return chosen
