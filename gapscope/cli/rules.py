"""`gapscope rules`: what the dependency model takes for granted, and whether a run agrees."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapscope.cli import output
from gapscope.cli.options import Json
from gapscope.cli.results import require_model
from gapscope.errors import EXIT_INCONCLUSIVE, GapscopeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapscope.model.rules.book import Rule


def rules(
    pack: Annotated[
        str | None, typer.Argument(metavar="[PACK]", help="A rule pack; without it: all packs.")
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option("--class", metavar="a,b", help="Only rules of these classes, a to e."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="RUN", help="Say how often each rule occurs in this run."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the dependency rules of a pack: what must end before what starts, why, and the source.

    With --run: instances of each rule in the run, how many do not hold, how often it is part of
    the binding chain of the bound, and the recoverable idle that it held.

    Example: gapscope rules fsdp2 --run gapscope.run
    """
    if pack is None:
        if classes is not None or run is not None:
            raise GapscopeError("usage", "`--class` and `--run` need a PACK", "`gapscope rules`")
        _print_packs(as_json=as_json)
        return
    chosen = _chosen(pack, classes)
    if run is None:
        if as_json:
            content = {"pack": pack, "rules": [asdict(rule) for rule in chosen]}
            output.document("gapscope.rules/1", content)
        else:
            output.data(_rule_list(chosen))
        return

    from gapscope.model.rule_use import rule_use
    from gapscope.run import open_run

    with open_run(run) as opened:
        require_model(opened)
        used = rule_use(opened)
    if not used:
        raise GapscopeError(
            "no-program",
            f"nothing in `{run}` is of pack `{pack}`",
            f"`gapscope sql {run} -c 'FROM model_check'` says why",
            EXIT_INCONCLUSIVE,
        )
    known = {rule.id for rule in _packs()[pack][1]}
    orders = [] if classes else sorted(rule for rule in used if rule not in known)
    if as_json:
        rows: list[dict[str, Any]] = [{**asdict(r), **_counts(used, r.id)} for r in chosen]
        content = {"pack": pack, "run": str(run), "rules": rows}
        content["orders"] = [{"id": order, **_counts(used, order)} for order in orders]
        output.document("gapscope.rules/1", content)
    else:
        output.data(_use_table(chosen, orders, used))


def _packs() -> dict[str, tuple[str, Sequence[Rule]]]:
    """Name -> what it is for, rules."""
    from gapscope.model.rules import fsdp2

    torch = f"torch {fsdp2.TORCH_VERSIONS[0]} to {fsdp2.TORCH_VERSIONS[-1]}"
    return {fsdp2.NAME: (f"FSDP2 (`fully_shard`), {torch}", fsdp2.RULES)}


def _print_packs(*, as_json: bool) -> None:
    packs = [
        {"pack": name, "for": purpose, "rule_count": len(book)}
        for name, (purpose, book) in _packs().items()
    ]
    if as_json:
        output.document("gapscope.rules/1", {"packs": packs})
    else:
        output.data(output.table(("pack", "for", "rules"), [tuple(one.values()) for one in packs]))


def _chosen(pack: str, classes: str | None) -> list[Rule]:
    from gapscope.model.rules.book import CLASSES

    packs = _packs()
    if pack not in packs:
        raise GapscopeError(
            "unknown-pack", f"there is no rule pack `{pack}`", f"here are: {', '.join(packs)}"
        )
    asked = set(CLASSES) if classes is None else {part.strip() for part in classes.split(",")}
    if not asked <= set(CLASSES):
        meanings = ", ".join(f"{name} {meaning}" for name, meaning in CLASSES.items())
        raise GapscopeError(
            "usage",
            f"invalid value for '--class': '{classes}' names what is no class",
            f"one or more of: {meanings}",
        )
    return [rule for rule in packs[pack][1] if rule.edge_class in asked]


def _rule_list(chosen: Sequence[Rule]) -> str:
    """One rule a line, why and where below: sources are too long for a column."""
    from gapscope.model.rules.book import CLASSES

    found = {rule.edge_class for rule in chosen}
    lines = [
        output.wrapped(f"class {name}  ", meaning)
        for name, meaning in CLASSES.items()
        if name in found
    ]
    lines.append(output.wrapped("", "The bound holds to classes a and b alone."))
    for rule in chosen:
        arrow = f"{rule.before} -> {rule.after}"
        lines += [
            "",
            output.wrapped(f"{rule.id:<4}  ", f"{arrow}  ({rule.edge_class})  {rule.reason}"),
            output.wrapped("      ", rule.source),
        ]
    return "\n".join(lines)


def _use_table(
    chosen: Sequence[Rule], orders: Sequence[str], used: dict[str, dict[str, int]]
) -> str:
    header = ("rule", "before -> after", "class", "instances", "broken", "binds", "held ms")
    rows = [
        (rule.id, f"{rule.before} -> {rule.after}", rule.edge_class, *_cells(used, rule.id))
        for rule in chosen
    ]
    rows += [(order, "order", "", *_cells(used, order)) for order in orders]
    return "\n".join(
        [
            output.table(header, rows, limit=output.width()),
            "",
            output.wrapped(
                "",
                "instances, broken: over ranks and steps, for Q1 ops that the queue held and "
                "counter-examples; binds: places in the binding chains of the bound; held: "
                "recoverable idle found by way of the rule, summed over ranks and steps",
            ),
        ]
    )


def _cells(used: dict[str, dict[str, int]], rule: str) -> tuple[object, ...]:
    counts = used.get(rule, {})
    held_ns = counts.get("held_ns")
    held = "" if held_ns is None else f"{held_ns / 1e6:.2f}"
    return counts.get("instances"), counts.get("violations"), counts.get("binds"), held


def _counts(used: dict[str, dict[str, int]], rule: str) -> dict[str, int | None]:
    names = ("instances", "violations", "binds", "held_ns")
    return {name: used.get(rule, {}).get(name) for name in names}
