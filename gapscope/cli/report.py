"""`gapscope report`: the report of a run, in the format that the output's name asks for."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapscope.cli import files, output
from gapscope.cli.options import DEFAULT_REPORT, DEFAULT_RUN, Force, Json, Quiet, RunArgument
from gapscope.errors import GapscopeError

if TYPE_CHECKING:
    from gapscope.report.document import Document

# What marks a report as ours, near the start of the file.
_MARK = '<meta name="generator" content="GapScope'
_HEAD_BYTES = 4096


class Format(str, Enum):
    """Renderers by the name that `--format` takes."""

    HTML = "html"
    MARKDOWN = "md"
    JSON = "json"
    TEXT = "text"


_SUFFIXES = {
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".md": Format.MARKDOWN,
    ".json": Format.JSON,
    ".txt": Format.TEXT,
}


def report(
    run: RunArgument = DEFAULT_RUN,
    out: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="`-` is stdout; suffix gives format."),
    ] = None,
    format_: Annotated[
        Format | None, typer.Option("--format", help="Wins over the suffix of FILE.")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print three lines and write no file.")
    ] = False,
    no_charts: Annotated[
        bool, typer.Option("--no-charts", help="HTML without interactive charts: smaller.")
    ] = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the report of a run, by default gapscope-report.html here.

    Exit code 0 whatever the report says: it is not a judgement.

    Example: gapscope report -o report.md
    """
    if summary and (out is not None or format_ is not None or as_json):
        raise GapscopeError(
            "usage", "`--summary` goes alone", "`gapscope report --format json -o -` has all of it"
        )
    if as_json and out == "-":
        raise GapscopeError("usage", "`--json` and `-o -` both want stdout", "drop one of them")
    chosen = format_ or _format_of(out)
    target = None if summary or out == "-" else _target(out, chosen)
    if target is not None:
        ours = out is None and is_our_report(target)
        files.check_free(target, force=force, is_ours=ours)

    from gapscope.run import open_run

    with open_run(run) as opened:
        built = opened.report()
    if summary:
        output.data("\n".join(summary_lines(built)))
        return
    text = render(built, chosen, charts=not no_charts)
    if target is None:
        output.data(text)
        return
    files.write_text(target, text)
    if as_json:
        size = target.stat().st_size
        content = {"path": str(target), "format": chosen.value, "bytes": size}
        output.document("gapscope.report/1", content)
    else:
        for line in summary_lines(built):
            output.say(line, quiet=quiet)
        output.data(str(target))


def render(document: Document, chosen: Format, *, charts: bool = True) -> str:
    """The document in one format."""
    from gapscope.render import html, json, markdown, text

    if chosen is Format.HTML:
        return html.render(document, charts=charts)
    if chosen is Format.MARKDOWN:
        return markdown.render(document)
    if chosen is Format.JSON:
        return json.render(document)
    return text.render(document)


def summary_lines(document: Document) -> list[str]:
    """Three lines: the verdict, the parts of the step, what the capture is worth."""
    from gapscope import units

    verdict = document.verdict
    whole = "capture" if verdict.window == "capture" else "step"
    named = [(whole, verdict.step), *((part.label, part.time) for part in verdict.parts)]
    parts = [
        f"{label} {units.value(quantity.value, quantity.unit)}"
        for label, quantity in named
        if quantity is not None
    ]
    counts = ", ".join(f"{count} {status}" for status, count in document.quality_counts)
    return [
        verdict.headline.text,
        ", ".join(parts) or "no step could be measured",
        f"capture quality: {counts}",
    ]


def is_our_report(path: Path) -> bool:
    """Whether a file says that GapScope generated it."""
    try:
        with path.open("rb") as file:
            return _MARK.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False


def _format_of(out: str | None) -> Format:
    if out is None:
        return Format.HTML
    if out == "-":
        return Format.TEXT
    files.check_no_directory(Path(out))
    suffix = Path(out).suffix.lower()
    if suffix not in _SUFFIXES:
        raise GapscopeError(
            "unknown-format", f"`{out}` does not say a format", "add `--format html|md|json|text`"
        )
    return _SUFFIXES[suffix]


def _target(out: str | None, chosen: Format) -> Path:
    if out is not None:
        return Path(out)
    suffix = next(suffix for suffix, known in _SUFFIXES.items() if known is chosen)
    return DEFAULT_REPORT.with_suffix(suffix)
