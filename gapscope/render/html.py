"""The page: one file, no network, complete without scripts."""

from __future__ import annotations

import base64
import gzip
import re
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from gapscope._resources import read_text
from gapscope.errors import GapscopeError
from gapscope.render import figures
from gapscope.report.document import Gantt, HeatMap, Quantity, Waterfall
from gapscope.units import common, interval, number, plural, scale, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2
    from markupsafe import Markup

    from gapscope.report.document import Bar, Cell, Column, Document, Figure, Table

SIZE_LIMIT = 3_000_000

_NUMERIC = frozenset({"ns", "+ns", "B", "share", "GB/s", "1/ms", "Hz", "count"})
_SHORT_NAME = 32
_LONG_NAME = 120
# A line must not break between a number and its unit.
_UNIT = re.compile(r"(?<=\d) (?=(?:%|[num]?s|[KMGT]i?B|B|GB/s|1/ms|MHz)(?![\w/]))")
_BREAK = re.compile(r"(::|,)")


def render(document: Document, *, charts: bool = True) -> str:
    """The whole page. Without `charts`, or without plotly, figures stay as they are drawn here."""
    script = _plotly() if charts else None
    page = _page(document, script)
    if script is not None and len(page.encode()) > SIZE_LIMIT:
        page = _page(document, None)
    return page


def _page(document: Document, script: str | None) -> str:
    drawn = [
        figures.chart(figure)
        for section in document.sections
        for figure in section.figures
        if script is not None
    ]
    return fill(
        "report.html.jinja",
        document=document,
        sections={section.id: section for section in document.sections},
        plotly=script,
        charts=drawn,
        claim_numbers={claim.id: place for place, claim in enumerate(document.claims, start=1)},
        titles=_titles(document),
        sql_shell="`gapscope sql`",
    )


def fill(template: str, **values: Any) -> str:
    """A page of `reports/templates` with the assets that every page has."""
    return (
        _environment()
        .get_template(template)
        .render(
            classes=figures.palette().values(),
            css=_asset("report.css"),
            js=_asset("report.js"),
            **values,
        )
    )


def _titles(document: Document) -> dict[str, str]:
    """Words for links to tables and figures."""
    return {
        part.id: part.title
        for section in document.sections
        for part in (*section.figures, *section.tables)
    }


@lru_cache(maxsize=1)
def _plotly() -> str | None:
    """The installed plotly.js, gzipped and in base64; None where plotly is not installed."""
    from importlib import resources

    try:
        source = resources.files("plotly") / "package_data" / "plotly.min.js"
        raw = source.read_bytes()
    except (ModuleNotFoundError, FileNotFoundError):
        return None
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode("ascii")


def _asset(name: str) -> Markup:
    from markupsafe import Markup

    text = read_text("reports", "assets", name)
    if re.search(r"</(script|style)", text, re.IGNORECASE):
        raise GapscopeError(
            "broken-installation",
            f"`reports/assets/{name}` could close the element that holds it",
            "reinstall: `pip install --force-reinstall gapscope`",
        )
    return Markup(text)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(
            lambda name: read_text("reports", "templates", *name.split("/"))
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    environment.filters.update(
        rich=rich,
        code=code,
        cells=cells,
        quantity=quantity,
        value=value,
        rows=lambda count: plural(count, "row"),
        percent=lambda share: value(share, "share"),
        numeric=lambda column: column.kind in _NUMERIC,
        svg=svg,
        bar=bar,
        legend=figures.legend,
        kind=_kind,
        color=lambda name: figures.time_class(name).name,
        label=lambda name: figures.time_class(name).label,
    )
    return environment


def _kind(figure: Figure) -> str:
    return {Waterfall: "waterfall", Gantt: "gantt", HeatMap: "heat"}[type(figure)]


def svg(figure: Figure) -> Markup:
    """The static twin of a figure; every text in it is escaped where it is made."""
    from markupsafe import Markup

    text = figures.gantt_svg(figure) if isinstance(figure, Gantt) else ""
    if isinstance(figure, HeatMap):
        text = figures.heat_svg(figure)
    return Markup(text)


def bar(item: Bar, figure: Waterfall) -> Markup:
    """The bar of one row of a waterfall's table."""
    from markupsafe import Markup

    return Markup(figures.bar_svg(item, figure))


def quantity(amount: Quantity) -> str:
    """`194.5 ms (n=3, 191.7-195.3)`."""
    return interval(amount.value, amount.unit, amount.n, amount.low, amount.high)


def _breakable(name: str) -> str:
    """Escaped, with places to break a line after `::` and `,`."""
    return "".join(
        part + "<wbr>" if part in ("::", ",") else escape(part) for part in _BREAK.split(name)
    )


def code(name: str) -> Markup:
    """A name as code; a long one folds behind its beginning."""
    from markupsafe import Markup

    if len(name) <= _SHORT_NAME:
        return Markup(f'<code class="short">{escape(name)}</code>')
    if len(name) <= _LONG_NAME:
        return Markup(f"<code>{_breakable(name)}</code>")
    return Markup(
        f'<details class="name"><summary><code>{_breakable(name[:90])}…</code></summary>'
        f"<code>{_breakable(name)}</code></details>"
    )


def rich(text: str) -> Markup:
    """A sentence; what stands in backticks becomes code."""
    from markupsafe import Markup

    parts = _UNIT.sub("\u00a0", text).split("`")
    if len(parts) % 2 == 0:
        return Markup(escape(text))
    return Markup(
        "".join(
            f"<code>{_breakable(part)}</code>" if index % 2 else escape(part)
            for index, part in enumerate(parts)
        )
    )


def cells(table: Table) -> list[list[dict[str, Any]]]:
    """Rows ready to print; the numbers of a column share one unit."""
    units = [
        _unit(column, [row[i] for row in table.rows]) for i, column in enumerate(table.columns)
    ]
    return [
        [
            _cell(column, cell, units[index])
            for index, (column, cell) in enumerate(zip(table.columns, row, strict=True))
        ]
        for row in table.rows
    ]


def _unit(column: Column, column_cells: Sequence[Cell]) -> tuple[float, str] | None:
    if column.kind not in _NUMERIC:
        return None
    amounts: list[float | None] = []
    for cell in column_cells:
        if isinstance(cell, Quantity):
            amounts += [cell.value, cell.low, cell.high]
        elif isinstance(cell, int | float):
            amounts.append(cell)
    return common(amounts, column.kind)


def _cell(column: Column, cell: Cell, unit: tuple[float, str] | None) -> dict[str, Any]:
    if cell is None:
        text = "n/a" if column.kind in _NUMERIC else "–"  # noqa: RUF001 -- a dash
        return {"kind": "none", "text": text, "sort": None}
    if isinstance(cell, Quantity):
        text = interval(cell.value, cell.unit, cell.n, cell.low, cell.high, unit)
        head, _, rest = text.partition(" (")
        return {
            "kind": "quantity",
            "text": head,
            "rest": f"({rest}" if rest else "",
            "sort": cell.value,
        }
    if column.kind in _NUMERIC and isinstance(cell, int | float):
        divisor, name = unit or scale([cell], column.kind)
        text = f"{number(cell, divisor, column.kind)} {name}".rstrip()
        return {"kind": "number", "text": text, "sort": cell}
    kind = column.kind if column.kind in ("code", "class", "status", "id") else "text"
    sort = cell if isinstance(cell, int) else None
    return {"kind": kind, "text": str(cell), "sort": sort}
