"""The report for a terminal: 80 columns, plain ASCII, meaning without colour."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from gapscope.report.document import Quantity, Waterfall
from gapscope.units import interval, listed, plural, value, values

if TYPE_CHECKING:
    from gapscope.report.document import (
        Cell,
        Document,
        Opportunity,
        Section,
        Statement,
        Table,
        Verdict,
    )

WIDTH = 80


def render(document: Document) -> str:
    """The same order as the page, without figures that need room."""
    lines = [f"GapScope report: {document.header.run_name}"]
    lines += _wrap(
        "; ".join(
            f"{label} {text}" for label, text in document.header.facts if not label.startswith("in")
        ),
        "  ",
    )
    for number, section in enumerate(document.sections, start=1):
        lines += ["", f"{number}. {section.title.upper()}", ""]
        if section.id == "claims":
            lines += _claims(document)
            continue
        lines += _statements(section.statements)
        for figure in section.figures:
            if isinstance(figure, Waterfall):
                lines += _waterfall(figure)
        if section.id == "quality":
            lines += _quality(document)
        if section.id == "budget":
            lines += _small(section, _MODEL)
            lines += _small(section, _METRICS_OF_RANKS if _are_of_ranks(section) else _METRICS)
            lines += _steps(document)
        if section.id == "opportunities":
            lines += _small(section, _GAINS)
            lines += _opportunities(document)
        lines += _statements(section.missing)
    return _ascii("\n".join(lines)) + "\n"


def summary(document: Document) -> str:
    """Exactly three lines of about 100 columns at most, fit for a training log."""
    verdict = document.verdict
    counts = dict(document.quality_counts)
    checks = f"{counts.get('fail', 0)} fail, {counts.get('warn', 0)} warn"
    if verdict.is_withheld or verdict.step is None or verdict.compute is None:
        lines = [
            f"gapscope: {verdict.headline.text}",
            f"gapscope: capture quality: {checks}",
            "gapscope: see `gapscope doctor` for what is missing",
        ]
        return _ascii("\n".join(" ".join(line.split()) for line in lines))
    noun = "step" if verdict.window == "device" else "capture"
    if verdict.t_lb is not None and verdict.gap is not None:
        middle = _above(verdict)
    else:
        parts = [verdict.launch_starved, verdict.blocking, verdict.stalled, verdict.tail]
        amounts = values([part.value for part in parts if part is not None], "ns")
        names = ("launch-starved", "blocking", "stalled", "tail")
        bound = {"lower": ">= ", "upper": "<= "}.get(verdict.blocking_bound, "")
        middle = "no compute: " + ", ".join(
            f"{name} {bound if name == 'blocking' else ''}{amount}"
            for name, amount in zip(names, amounts, strict=True)
        )
    top = "no finding above 1 %"
    if document.opportunities:
        card = document.opportunities[0]
        top = f"top: {card.title}"
        if card.ceiling is not None:
            labels = "".join(f", {label}" for label in card.labels)
            top += f" (<= +{value(card.ceiling.value, 'share')}{labels})"
    return _ascii(
        f"gapscope: {noun} {_quantity(verdict.step)}, "
        f"compute {value(verdict.compute.value, 'ns')}, "
        f"rank {verdict.rank} ({document.header.rank_count} captured)\n"
        f"gapscope: {middle}\n"
        f"gapscope: {top}; quality: {checks}"
    )


def _above(verdict: Verdict) -> str:
    """The bound, what lies above it, and of what that is made."""
    bound = verdict.t_lb
    gap = verdict.gap
    if bound is None or gap is None:
        return ""
    head = (
        f"T_lb {value(bound.value, 'ns')}, above it {value(gap.value, 'ns')} "
        f"({value(verdict.gap_share, 'share')})"
    )
    if verdict.is_provisional:
        return f"{head}: no verdict on what it is"
    named = [part for part in verdict.parts if part.time_class in ("R1", "R2", "R3")]
    amounts = values([part.time.value for part in named], "ns")
    split = ", ".join(
        f"{part.time_class} {amount}" for part, amount in zip(named, amounts, strict=True)
    )
    other = (gap.value or 0) - sum(part.time.value or 0 for part in named)
    return f"{head}: {split}, other {value(other, 'ns')}"


def _quantity(amount: Quantity) -> str:
    return interval(amount.value, amount.unit, amount.n, amount.low, amount.high)


def _ceiling(card: Opportunity) -> str:
    if card.ceiling is None:
        return ""
    labels = "".join(f", {label}" for label in card.labels)
    return f"ceiling +{_quantity(card.ceiling)} throughput{labels}; "


def _ascii(text: str) -> str:
    """Names may hold anything: what a plain terminal cannot print becomes `?`."""
    plain = text.replace("–", "-").replace("…", "...")  # noqa: RUF001 -- to ASCII
    return "".join(c if c == "\n" or " " <= c <= "~" else "?" for c in plain)


def _wrap(text: str, indent: str = "", first: str | None = None) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=True,
        break_on_hyphens=False,
    )


def _statements(items: tuple[Statement, ...]) -> list[str]:
    return [line for item in items for line in _wrap(item.text, "  ", "- ")]


def _waterfall(figure: Waterfall) -> list[str]:
    times = values([bar.value_ns for bar in figure.bars], "ns")
    whole = figure.bars[0].value_ns
    name = max(15, *(len(bar.label) for bar in figure.bars))
    room = WIDTH - name - 26
    lines = ["", *_wrap(f"{figure.title}: {figure.caption}")]
    for bar, time in zip(figure.bars, times, strict=True):
        before = bar.base_ns * room // max(whole, 1)
        length = (bar.base_ns + bar.value_ns) * room // max(whole, 1) - before
        drawn = " " * before + "#" * length
        share = value(bar.share, "share")
        lines.append(f"  {bar.label:<{name}}{time:>11} {share:>8}  |{drawn:<{room}}|")
    return lines


# Tables of the dependency model: columns to show, with short heads.
_MODEL = {
    "gaps": {
        "rank": "rank",
        "observed": "observed",
        "t_lb": "T_lb",
        "R1": "R1",
        "R2": "R2",
        "R3": "R3",
        "H1": "H1",
        "H2": "H2",
    },
    "bounds": {"limits": "limits", "bound": "shortest step"},
    "ladder": {"removed": "without", "step": "step", "saved_ns": "saved", "stretched": "stretched"},
    "changes": {"change": "change", "step": "step", "saved_ns": "saved"},
    "queues": {
        "streams": "streams",
        "instance_count": "fit",
        "counter_examples": "do not",
    },
}


# What could be got back, by evidence: R of the shown step only.
_GAINS = {
    "gains": {
        "basis": "evidence",
        "cost": "without",
        "recoverable": "R at most",
        "status": "known",
    }
}


# Hardware metrics of classes, as far as they fit. Samples that met the ranks' own ops cover these.
_METRICS_OF_RANKS = {
    "class-metrics": {
        "rank": "rank",
        "op_class": "class",
        "timing_share": "volume",
        "full_count": "n",
        "sm_issue": "SM Issue",
        "tensor_active": "Tensor Active",
        "status": "status",
    }
}
_METRICS = {
    "class-metrics": {
        "device": "GPU",
        "op_class": "class",
        "timing_share": "volume",
        "covered_share": "covered",
        "full_count": "n",
        "sm_issue": "SM Issue",
        "tensor_active": "Tensor Active",
        "status": "status",
    }
}


def _are_of_ranks(section: Section) -> bool:
    """Whether all metrics are of samples in captures of ranks, none in captures of their own."""
    for table in section.tables:
        keys = [column.key for column in table.columns]
        if table.id == "class-metrics" and "rank" in keys:
            return all(row[keys.index("rank")] is not None for row in table.rows)
    return False


def _small(section: Section, shown: dict[str, dict[str, str]]) -> list[str]:
    """The tables that fit 80 columns, values of the shown step only."""
    lines: list[str] = []
    for table in section.tables:
        if table.id in shown and table.rows:
            lines += ["", *_wrap(f"{table.title}:"), *_grid(table, shown[table.id])]
            lines += [line for note in table.notes for line in _wrap(note, "    ", "  ")]
    return lines


def _grid(table: Table, heads: dict[str, str]) -> list[str]:
    places = [next(i for i, c in enumerate(table.columns) if c.key == key) for key in heads]
    columns = [
        [head, *_column(table, place)] for head, place in zip(heads.values(), places, strict=True)
    ]
    widths = [max(map(len, column)) for column in columns]
    is_text = [table.columns[place].kind in ("text", "code") for place in places]
    return [
        "  "
        + "  ".join(
            f"{column[line]:<{width}}" if left else f"{column[line]:>{width}}"
            for column, width, left in zip(columns, widths, is_text, strict=True)
        ).rstrip()
        for line in range(len(columns[0]))
    ]


def _column(table: Table, place: int) -> list[str]:
    """Cells of a column as text, times of a column in one unit."""
    cells = [row[place] for row in table.rows]
    if table.columns[place].kind == "share":
        return [value(_amount(cell), "share") for cell in cells]
    if table.columns[place].kind != "ns":
        return ["" if cell is None else str(cell) for cell in cells]
    amounts = [_amount(cell) for cell in cells]
    texts = values(amounts, "ns")
    words = [cell if isinstance(cell, str) else "" for cell in cells]
    return [
        word if amount is None else text
        for word, amount, text in zip(words, amounts, texts, strict=True)
    ]


def _amount(cell: Cell) -> float | None:
    if isinstance(cell, Quantity):
        return cell.value
    return cell if isinstance(cell, int | float) else None


def _quality(document: Document) -> list[str]:
    table = document.section("quality").tables[0]
    lines = [""]
    for row in table.rows:
        entry = {c.key: str(cell or "") for c, cell in zip(table.columns, row, strict=True)}
        if entry["status"] == "ok":
            continue
        who = "run" if entry["ranks"] == "run" else f"rank {entry['ranks']}"
        lines += _wrap(
            f"{entry['check_name']} ({who}): {entry['detail']}",
            "        ",
            f"  {entry['status']:<6}",
        )
        if entry["forbids"]:
            lines += _wrap(f"prevents: {entry['forbids']}", "        ")
    return lines if len(lines) > 1 else []


_STEP_KEYS = ("step_ns", "compute_ns", "launch_starved_ns", "blocking_ns", "stalled_ns", "tail_ns")


def _steps(document: Document) -> list[str]:
    found = [t for t in document.section("budget").tables if t.id == "steps"]
    if not found:
        return []
    table = found[0]
    lines = [
        "",
        f"  {'rank':>4} {'step':>5}"
        + "".join(
            f"{name:>11}" for name in ("step", "compute", "starved", "blocking", "stalled", "tail")
        ),
    ]
    for row in table.rows[:20]:
        entry = {c.key: cell for c, cell in zip(table.columns, row, strict=True)}
        amounts: list[float | None] = []
        for key in _STEP_KEYS:
            cell = entry[key]
            amounts.append(cell if isinstance(cell, int | float) else None)
        mark = "*" if entry["boundary"] else ""
        lines.append(
            f"  {entry['rank']!s:>4} {str(entry['step_id']) + mark:>5}"
            + "".join(f"{amount:>11}" for amount in values(amounts, "ns"))
        )
    if any(row[-1] for row in table.rows[:20]):
        lines.append("  * boundary step, not counted in medians")
    if len(table.rows) > 20:
        rest = sorted({int(str(row[0])) for row in table.rows[20:]})
        lines += _wrap(
            f"({plural(len(table.rows) - 20, 'more row')}, of rank {listed(rest)}: they are in the "
            "HTML and the JSON report)",
            "  ",
        )
    lines.append("")
    return lines


def _opportunities(document: Document) -> list[str]:
    lines: list[str] = []
    for place, card in enumerate(document.opportunities, start=1):
        lines += ["", *_wrap(f"{place}. {card.title}")]
        lines += _wrap(
            f"{_ceiling(card)}{_quantity(card.time)}, "
            f"{value(card.step_share, 'share')} of the window"
            + (f"; modelled step without it {_quantity(card.modelled)}" if card.modelled else ""),
            "     ",
        )
        lines += _wrap(card.mechanism.text, "     ")
        for item in card.evidence:
            lines += _wrap(item.text, "       ", "     - ")
        for label, said in (
            ("bound", card.bound.text),
            ("confidence", card.confidence.text),
            *(("try", advice) for advice in card.what_to_try),
            ("not when", card.not_when),
            ("to verify", card.verify),
        ):
            lines += _wrap(f"{label}: {said}", "       ", "     - ")
    return [*lines, ""] if lines else []


def _claims(document: Document) -> list[str]:
    lines = []
    for claim in document.claims:
        lines += _wrap(claim.text, "    ", f"  [{claim.status.value}] ")
    return lines
