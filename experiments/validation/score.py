"""Score steps.csv and pieces.csv: `score.py OUT` prints the tables.

With `--write DIR` also cells.csv (what was asked, one row a run and rank) and confusion.svg.
"""

from __future__ import annotations

import argparse
import csv
from collections import Counter, defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from picture import heat_map
from settings import runs as settings_of

Row = dict[str, Any]

TEXTS = ("run", "twin", "faults", "refused", "expected", "injected", "truth", "model")
CLASSES = ("R1", "R2", "R3", "H")
# An injection that costs less of the step is too small to be asked for.
MATERIAL = 0.02


def read(path: Path) -> list[Row]:
    """Rows with numbers as numbers; empty is None."""
    with path.open(newline="") as file:
        return [{key: _value(key, row[key]) for key in row} for row in csv.DictReader(file)]


def _value(key: str, text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    if key in TEXTS:
        return text
    return float(text) if text else None


def found(row: Row) -> dict[str, float]:
    """What the model says of one rank and step."""
    return {
        "R1": row["r1_ns"], "R2": row["r2_ns"], "R3": row["r3_ns"],
        "H": row["h1_ns"] + row["h2_ns"],
    }  # fmt: skip


def cells(rows: list[Row]) -> list[Row]:
    """One row a run and rank: the run less its clean twin, mean of the steps that both have."""
    of = {(row["run"], row["rank"], row["step_id"]): row for row in rows}
    groups: dict[tuple[str, float], list[tuple[Row, Row]]] = defaultdict(list)
    for row in rows:
        twin = of.get((row["twin"], row["rank"], row["step_id"]))
        judged = [one for one in (row, twin) if one and one["r1_ns"] is not None]
        if len(judged) == 2 and not any(one["is_boundary"] for one in judged):
            groups[row["run"], row["rank"]].append((row, judged[1]))
    result = []
    for (run, rank), pairs in groups.items():
        first = pairs[0][0]
        cell: Row = {
            "run": run,
            "rank": rank,
            "faults": first["faults"],
            "expected": first["expected"].split("+"),
            "refused": first["refused"],
            "observed": mean(row["observed_ns"] for row, _ in pairs),
            # What each injection costs in step time, and what all of them do to gap and hard idle.
            "injected": [mean(of) for of in zip(*(_costs(row) for row, _ in pairs), strict=True)],
            "gap": mean(_gap(row) - _gap(twin) for row, twin in pairs),
            "hard": mean(_hard(row) - _hard(twin) for row, twin in pairs),
        }
        for name in CLASSES:
            cell[name] = mean(found(row)[name] - found(twin)[name] for row, twin in pairs)
            cell[f"saved {name}"] = _saved(name, pairs)
        result.append(cell)
    return result


def _costs(row: Row) -> list[float]:
    return [float(one) for one in row["injected"].split("+")]


def _gap(row: Row) -> float:
    return float(row["observed_ns"] - row["ideal_ns"])


def _saved(name: str, pairs: list[tuple[Row, Row]]) -> float | None:
    """What the ladder promises without the class, compute slowed as the capture shows."""
    key = f"without_{name.lower()}_ns"
    both = [pair for pair in pairs if all(one.get(key) is not None for one in pair)]
    if not both:
        return None
    return mean(
        (row["replayed_ns"] - row[key]) - (twin["replayed_ns"] - twin[key]) for row, twin in both
    )


def _hard(row: Row) -> float:
    """Idle of the simulator's own shortest step: copies and memsets of the engine are the same."""
    return float(row["ideal_ns"] - row["compute_ns"])


def singles(all_cells: list[Row]) -> list[Row]:
    """Cells of one fault in which it shows as a class, large enough to be asked for."""
    result = []
    for cell in all_cells:
        expected = cell["expected"][0]
        if "+" in cell["faults"] or not cell["faults"] or expected in ("", "compute"):
            continue
        kind = expected[0] if expected[0] == "H" else expected
        cost = cell["hard"] if kind == "H" else cell["injected"][0]
        if cost < MATERIAL * cell["observed"]:
            continue
        # Less compute or longer transfers can also make a run late or queued, by the simulator's
        # own account more than they add idle to its shortest step: what dominates is not H.
        if kind == "H" and cell["gap"] > cost:
            continue
        dominant = max(CLASSES, key=lambda name: cell[name])
        gap = cell["hard"] if kind == "H" else cell["gap"]
        saved = cell[f"saved {kind}"]
        result.append(
            {
                **{name: cell[name] for name in ("run", "rank", "faults", "refused", *CLASSES)},
                "expected": kind,
                "dominant": dominant,
                "share": cost / cell["observed"],
                "cost": cost,
                "gap": gap,
                "off_cost": abs(cell[kind] - cost) / cost,
                "off_ladder": None if saved is None else abs(saved - cost) / cost,
                "off_gap": abs(cell[kind] - gap) / abs(gap) if gap else 1.0,
            }
        )
    return result


def doubles(all_cells: list[Row]) -> str:
    """Two faults at once: does the one that costs more dominate, and is their sum right?"""
    right, asked, off = 0, 0, []
    for cell in all_cells:
        if "+" not in cell["faults"]:
            continue
        kinds = [one if one[:1] != "H" else "H" for one in cell["expected"]]
        (first, most), (second, less) = sorted(
            zip(kinds, cell["injected"], strict=True), key=lambda pair: -pair[1]
        )
        if first == second or first in ("", "compute") or second in ("", "compute"):
            continue
        soft = sum(cell[name] for name in CLASSES if name != "H")
        if "H" not in kinds and cell["gap"] >= MATERIAL * cell["observed"]:
            off.append(abs(soft - cell["gap"]) / cell["gap"])
        if most - less >= MATERIAL * cell["observed"]:
            asked += 1
            right += max(CLASSES, key=lambda name: cell[name]) == first
    sums = f"; sum of the classes off by {percent(median(off))} in the median" if off else ""
    return f"two faults: the larger one dominates on {right} of {asked} ranks{sums}\n"


def table(head: list[str], rows: list[list[Any]]) -> str:
    """Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def by_run(asked: list[Row]) -> dict[str, list[Row]]:
    """Cells by run."""
    runs: dict[str, list[Row]] = defaultdict(list)
    for cell in asked:
        runs[cell["run"]].append(cell)
    return runs


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def spread(errors: list[float]) -> list[str]:
    """Median and p90."""
    if not errors:
        return ["", ""]
    return [percent(median(errors)), percent(sorted(errors)[int(0.9 * len(errors))])]


def faults_table(asked: list[Row]) -> str:
    runs = by_run(asked)
    kinds: dict[str, list[list[Row]]] = defaultdict(list)
    for of_run in runs.values():
        kinds[of_run[0]["faults"]].append(of_run)
        kinds["all"].append(of_run)
    lines = []
    for kind, group in sorted(kinds.items()):
        right = sum(all(one["dominant"] == one["expected"] for one in of) for of in group)
        cost = [median(one["off_cost"] for one in of) for of in group]
        gap = [median(one["off_gap"] for one in of) for of in group]
        known = [[one["off_ladder"] for one in of if one["off_ladder"] is not None] for of in group]
        ladder = [median(of) for of in known if of]
        lines.append(
            [kind, len(group), f"{right} ({percent(right / len(group))})",
             *spread(cost), *spread(gap), *spread(ladder)]
        )  # fmt: skip
    head = ["fault", "runs", "right on all ranks"]
    head += ["off cost", "p90", "off gap", "p90", "off ladder", "p90"]
    return table(head, lines)


def confusion_table(asked: list[Row]) -> str:
    count = Counter((one["expected"], one["dominant"]) for one in asked)
    rows = [[name, *(count[name, other] for other in CLASSES)] for name in CLASSES]
    return table(["expected, found", *CLASSES], rows)


def clean_table(rows: list[Row]) -> str:
    """Clean runs: recoverable time that the simulator's own shortest step does not leave."""
    runs: dict[str, list[float]] = defaultdict(list)
    queues: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["faults"] or row["r1_ns"] is None or row["is_boundary"]:
            continue
        soft = row["r1_ns"] + row["r2_ns"] + row["r3_ns"]
        runs[row["run"]].append((soft - _gap(row)) / row["observed_ns"])
        queues[row["run"]].append(row["hw_queue_ns"] / row["observed_ns"])
    false = [run for run, excess in runs.items() if mean(excess) > MATERIAL]
    worst = max(mean(excess) for excess in runs.values())
    return f"clean runs {len(runs)}, false positives {len(false)} {false}, worst {percent(worst)}\n"


def queues_table(rows: list[Row], seed: int) -> str:
    """Whether shared queues are found in clean runs, by what the SPEC says."""
    given = {one.name: one.sections["device"]["queues"] for one in settings_of(999, 0, seed)}
    share: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if not row["faults"] and row["r1_ns"] is not None:
            share[row["run"]].append(row["hw_queue_ns"] / row["observed_ns"])
    lines = []
    for kind in ("none", "two", "one"):
        found_in = [mean(of) for run, of in share.items() if given[run] == kind]
        lines.append([kind, len(found_in), sum(one > 0 for one in found_in)])
    return table(["hardware queues of clean runs", "runs", "R2 hw_queue found"], lines)


def bound_table(rows: list[Row]) -> str:
    judged = [row for row in rows if row["t_lb_ns"] and not row["is_boundary"]]
    ratios = sorted(row["t_lb_ns"] / row["ideal_ns"] for row in judged)
    places = (0, 1, 5, 50, 95, 99, 100)
    at = [ratios[min(len(ratios) - 1, place * len(ratios) // 100)] for place in places]
    return table([f"p{place}" for place in places], [[f"{value:.4f}" for value in at]])


def pieces_table(pieces: list[Row]) -> str:
    total: Counter[tuple[str, str]] = Counter()
    for row in pieces:
        total[row["truth"], row["model"]] += row["ns"]
    truths = sorted({truth for truth, _ in total})
    models = sorted({model for _, model in total})
    sums = {truth: sum(total[truth, model] for model in models) for truth in truths}
    rows = []
    for truth in truths:
        shares = [total[truth, model] / sums[truth] for model in models]
        shown = [percent(share) if share else "" for share in shares]
        rows.append([truth, f"{sums[truth] / 1e9:.2f} s", *shown])
    return table(["held by", "time", *models], rows)


def write(asked: list[Row], directory: Path) -> None:
    """What was asked, in ms, and the confusion matrix as a picture."""
    names = ("cost", "gap", *CLASSES)
    with (directory / "cells.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "rank", "fault", "expected", "found", *(f"{n}_ms" for n in names)])
        for one in sorted(asked, key=lambda one: (one["run"], one["rank"])):
            numbers = [f"{one[name] / 1e6:.3f}" for name in names]
            known = [one["run"], int(one["rank"]), one["faults"], one["expected"], one["dominant"]]
            writer.writerow([*known, *numbers])
    count = Counter((one["faults"], one["dominant"]) for one in asked)
    kinds = sorted({one["faults"] for one in asked})
    right = {kind: {one["expected"] for one in asked if one["faults"] == kind} for kind in kinds}
    svg = heat_map(
        kinds, list(CLASSES), [[count[kind, name] for name in CLASSES] for kind in kinds],
        [[name in right[kind] for name in CLASSES] for kind in kinds],
    )  # fmt: skip
    (directory / "confusion.svg").write_text(svg, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--misses", action="store_true", help="print cells that are wrong")
    given = parser.parse_args()
    rows = read(given.out / "steps.csv")
    every = cells(rows)
    asked = singles(every)
    runs = {row["run"]: row for row in rows}
    refused = Counter(row["refused"] for row in runs.values())
    print(len(runs), "runs; refused:", dict(refused), "\n")
    print(faults_table(asked), confusion_table(asked), clean_table(rows), sep="\n")
    print(bound_table(rows), pieces_table(read(given.out / "pieces.csv")), sep="\n")
    print(doubles(every), queues_table(rows, given.seed), sep="\n")
    if given.write:
        write(asked, given.write)
    if given.misses:
        for one in sorted(asked, key=lambda one: one["faults"]):
            if one["dominant"] != one["expected"] or one["off_cost"] > 0.25:
                print(
                    f"{one['run']:<32} r{one['rank']:.0f} {one['expected']} {one['share']:.3f}"
                    f" cost {one['cost'] / 1e6:7.2f} gap {one['gap'] / 1e6:7.2f} |",
                    *(f"{name} {one[name] / 1e6:7.2f}" for name in CLASSES),
                    one["refused"],
                )


if __name__ == "__main__":
    main()
