"""The real captures against what is known to have happened in them: `captures.py DIR [h200.toml]`.

DIR holds `kineto/NAME_rank*.json.gz` and `nsys/NAME_rank*.sqlite.gz`. Each expectation is one row:
classes are medians over the steps that are no boundary, less those of the clean twin where there is
one.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

import lean
import tomllib
from score import percent, table

Row = dict[str, Any]

CLEAN = 0.02

CLASSES = """
SELECT rank, median(r1_ns) / 1e6 AS R1, median(r2_ns) / 1e6 AS R2, median(r3_ns) / 1e6 AS R3,
    median(h1_ns + h2_ns) / 1e6 AS H,
    median(observed_ns) / 1e6 AS step, median(t_lb_ns) / 1e6 AS t_lb,
    bool_and(is_provisional) AS is_refused
FROM v1.step_gap WHERE NOT is_boundary GROUP BY rank ORDER BY rank
"""
SUBS = """
SELECT p.rank, p.sub_cause FROM v1.gap_piece AS p WHERE p.gap_class = 'R2'
GROUP BY ALL ORDER BY sum(p.end_ns - p.start_ns) DESC
"""


def analyse(files: list[Path], work: Path) -> dict[int, Row]:
    """What the model finds in one capture, by rank."""
    import gapscope
    from gapscope.ingest.pipeline import ingest

    sources = []
    for file in files:
        if ".sqlite" in file.name:
            plain = work / file.stem
            plain.write_bytes(gzip.decompress(file.read_bytes()))
            file = plain
        sources.append(file)
    ingest(sources, work / "run", workers=1)
    with gapscope.open_run(work / "run") as run:
        found = {row["rank"]: row for row in run.sql(CLASSES).to_dicts()}
        for row in run.sql(SUBS).to_dicts():
            found[row["rank"]].setdefault("sub", row["sub_cause"])
    return found


def judge(expected: Row, found: Row, twin: Row | None) -> tuple[list[Any], bool]:
    """One line of the table, and whether it is as expected."""
    names = ("R1", "R2", "R3", "H")
    beside = {name: found[name] - (twin[name] if twin else 0.0) for name in names}
    # Hard idle is in every step: without a twin it counts only where it is what is expected.
    asked = names if twin or expected["class"] == "H" else names[:3]
    dominant = max(asked, key=lambda name: beside[name])
    soft = sum(found[name] for name in names[:3])
    if found["is_refused"]:
        dominant = "refused"
    elif expected["class"] == "clean" and soft < CLEAN * found["step"]:
        dominant = "clean"
    is_right = dominant == expected["class"]
    if "sub_cause" in expected:
        is_right = is_right and found.get("sub") == expected["sub_cause"]
    wanted = expected["class"] + (f" {expected['sub_cause']}" if "sub_cause" in expected else "")
    if "ms" in expected:
        off = abs(beside[expected["class"]] - expected["ms"])
        is_right = is_right and off <= expected["tolerance_ms"]
        wanted += f" {expected['ms']} +- {expected['tolerance_ms']} ms"
    numbers = [f"{beside[name]:.1f}" for name in names]
    return [wanted, dominant, *numbers, f"{found['step']:.1f}", f"{found['t_lb']:.1f}"], is_right


def main(data: str, truth: str = str(Path(__file__).with_name("h200.toml"))) -> None:
    lean.install()
    captures: list[Row] = tomllib.loads(Path(truth).read_text(encoding="utf-8"))["capture"]
    found: dict[str, dict[int, Row]] = {}
    lines, right = [], []
    for capture in captures:
        name, twin = capture["name"], capture.get("twin", "")
        for one in (name, twin):
            if one and one not in found:
                with tempfile.TemporaryDirectory() as work:
                    found[one] = analyse(sorted(Path(data).glob(f"{one}_rank*")), Path(work))
        for expected in capture["expected"]:
            ranks = [expected["rank"]] if "rank" in expected else sorted(found[name])
            for rank in ranks:
                line, is_right = judge(
                    expected, found[name][rank], found[twin][rank] if twin else None
                )
                lines.append([name, twin, rank, *line, "yes" if is_right else "**no**"])
                right.append(is_right)
    head = ["capture", "beside", "rank", "expected", "found"]
    print(table([*head, "R1", "R2", "R3", "H", "step", "T_lb", "as expected"], lines))
    print(f"{sum(right)} of {len(right)} ({percent(sum(right) / len(right))})")


if __name__ == "__main__":
    main(*sys.argv[1:])
