"""True unit and phase of every device op of an annotated FSDP2 capture (Kineto).

truth.py CAPTURE.json.gz ... [--out DIR] [--strip DIR]
    one <stem>.truth.parquet per capture and a summary line each; --strip also writes the captures
    without their annotation, which is what a product gets to see
truth.py CAPTURE.json.gz --like TWIN.json.gz [--out DIR]
    an unannotated capture: the truth of its annotated twin, op by op in launch order

Forward: the innermost TRUTH::fwd range around the launch on the main thread. Backward: the autograd
node around the launch carries the sequence number of the forward op that made it (the last op of
the main thread to start with that number), and that op lies inside some TRUTH::fwd range. Nodes
without a number (AccumulateGrad) belong to the node before them on their thread.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]
Row = dict[str, Any]

AUTOGRAD_NODE = "autograd::engine::evaluate_function"
KIND_OF_CATEGORY = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
# An op launched inside one of these is FSDP2 moving data of its own, not compute.
MOVING = {
    "all_gather",
    "all_gather_copy_out",
    "post_backward_reduce",
    "forward_prefetch",
    "backward_prefetch",
}
LABEL = re.compile(r"^FSDP::(\w+?)(?: for (.*)| \((.*)\))?$")
MODULE_RANGES = ("TRUTH::fwd ", "TRUTH::loss")
# What a twin lends to an op of the unannotated capture.
TRUE_COLUMNS = (
    "scope",
    "true_unit",
    "true_phase",
    "via",
    "node",
    "truth_label",
    "reason",
    "recompute",
)


class Truth(NamedTuple):
    """Rows of a capture, and the forward op that each autograd sequence number stands for."""

    rows: list[Row]
    events: list[Event]
    made_by: dict[int, tuple[int, str | None, str]]


def fsdp_label(name: str) -> tuple[str, str] | None:
    """Verb and unit of one of FSDP2's own ranges."""
    found = LABEL.match(name)
    if not found:
        return None
    return found[1], found[2] if found[2] is not None else found[3] or ""


def start_ns(event: Event) -> int:
    return round(event["ts"] * 1000)


def end_ns(event: Event) -> int:
    return round((event["ts"] + event["dur"]) * 1000)


def sequence_number(event: Event) -> int | None:
    number = event["args"].get("Sequence number")
    # Ops outside of autograd carry -1, as a signed or an unsigned number.
    return None if number is None or number < 0 or number > 1 << 60 else number


def innermost_module(names: list[str]) -> str | None:
    return next((name for name in reversed(names) if name.startswith(MODULE_RANGES)), None)


def module_of(mark: str) -> str:
    return mark.removeprefix("TRUTH::fwd ").removeprefix("TRUTH::")


def read_capture(path: str | Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        return json.load(file)


def complete(events: list[Event]) -> list[Event]:
    return [event for event in events if event.get("ph") == "X"]


def sweep(ranges: list[Event], points: list[Event]) -> Iterator[tuple[Event, bool, list[Event]]]:
    """Every event of one thread in order of time: (event, is a point, the ranges open there).

    Open ranges are listed from the outermost on; a range is itself the last of its own list.
    """
    items = [(start_ns(event), 0, -event["dur"], event) for event in ranges]
    items += [(start_ns(event), 1, 0, event) for event in points]
    is_open: list[Event] = []
    for at_ns, is_point, _, event in sorted(items, key=lambda item: item[:3]):
        # 1 ns of slack between ranges: the capture rounds its decimals.
        while is_open and (
            end_ns(is_open[-1]) < at_ns if is_point else end_ns(is_open[-1]) - 1 <= at_ns
        ):
            is_open.pop()
        if not is_point:
            is_open.append(event)
        yield event, bool(is_point), is_open


def forward_ops(ranges: list[Event]) -> dict[int, tuple[int, str | None, str]]:
    """Sequence number -> start, module range and name of the last forward op with it."""
    made_by = {}
    for event, _, is_open in sweep(ranges, []):
        number = sequence_number(event)
        if number is not None:
            mark = innermost_module([one["name"] for one in is_open])
            made_by[number] = (start_ns(event), mark, event["name"])
    return made_by


def is_of_main_forward(event: Event) -> bool:
    return sequence_number(event) is not None and event["args"].get("Fwd thread id") == 1


def launch_contexts(
    by_thread: dict[int, list[Event]], points: dict[int, list[Event]], main_tid: int
) -> dict[int, tuple[list[Event], int | None]]:
    """`id` of a device op -> ranges open at its launch, last numbered autograd node before it."""
    context = {}
    for tid, launches in points.items():
        before: int | None = None
        for event, is_point, is_open in sweep(by_thread.get(tid, []), launches):
            if is_point:
                context[id(event["device"])] = (list(is_open), before)
            elif (
                tid != main_tid
                and is_of_main_forward(event)
                and any(one["name"].startswith(AUTOGRAD_NODE) for one in is_open[:2])
            ):
                before = sequence_number(event)
    return context


def numbers_of_children(by_thread: dict[int, list[Event]], main_tid: int) -> dict[int, int | None]:
    """`id` of an autograd node -> number of its child: a node opened with hooks has none itself."""
    numbers = {}
    for tid, ranges in by_thread.items():
        if tid == main_tid:
            continue
        for event, _, is_open in sweep(ranges, []):
            if (
                len(is_open) >= 2
                and is_open[-2]["name"].startswith(AUTOGRAD_NODE)
                and is_of_main_forward(event)
            ):
                numbers[id(is_open[-2])] = sequence_number(event)
    return numbers


def unit_finder(host: list[Event]) -> Callable[[str], str]:
    """Module -> unit of FSDP2 that it belongs to; '' is the root, which also has the loss."""
    labels = [found for event in host if (found := fsdp_label(event["name"]))]
    units = {unit for verb, unit in labels if verb in {"pre_forward", "all_gather", "pre_backward"}}

    def unit_of(module: str) -> str:
        if module == "loss":
            return ""
        return next(
            (unit for unit in units if module == unit or module in unit.split(", ")),
            "",
        )

    return unit_of


class Judge:
    """Says scope, unit and phase of an op from what was open at its launch."""

    def __init__(
        self,
        unit_of: Callable[[str], str],
        made_by: dict[int, tuple[int, str | None, str]],
        number_of_child: dict[int, int | None],
    ) -> None:
        self.unit_of = unit_of
        self.made_by = made_by
        self.number_of_child = number_of_child

    def judge(
        self, op_name: str, is_open: list[Event], before: int | None, *, on_main: bool
    ) -> Row:
        names = [one["name"] for one in is_open]
        labels = [found for found in map(fsdp_label, names) if found]
        verb, unit = labels[-1] if labels else ("", "")
        told: Row = {"fsdp_label": verb, "fsdp_unit": unit} if labels else {}
        if op_name.startswith("nccl") or "record_param_comms" in names:
            return told | {"scope": "comm"}
        if verb in MOVING:
            return told | {"scope": "packing"}
        if verb == "post_forward":  # reshard_after_forward=int: a copy of each parameter
            by_label = {"true_unit": unit, "true_phase": "forward", "via": "fsdp label"}
            return told | {"scope": "packing"} | by_label
        if verb.startswith(("post_backward", "pre_backward", "root_post_backward")):
            return told | {"true_unit": unit, "true_phase": "backward", "via": "fsdp label"}
        node = next((one for one in is_open if one["name"].startswith(AUTOGRAD_NODE)), None)
        if node is not None:
            return told | self.backward(node, is_open[is_open.index(node) + 1 :], before)
        if any(name.startswith("Optimizer.step") or name == "optimizer" for name in names):
            return told | {"true_phase": "optimizer", "via": "optimizer range"}
        mark = innermost_module(names)
        if mark is not None:
            unit = self.unit_of(module_of(mark))
            by_range = {"true_phase": "forward", "via": "range", "truth_label": mark}
            return told | {"true_unit": unit} | by_range
        if "backward" in names and on_main:
            return told | {"true_unit": "", "true_phase": "backward", "via": "loss seed"}
        if verb in {"root_pre_forward", "pre_forward"}:
            return told | {"true_unit": unit, "true_phase": "forward", "via": "fsdp label"}
        return told | {"reason": "outside every range: " + " > ".join(names[-3:])}

    def backward(self, node: Event, inside: list[Event], before: int | None) -> Row:
        """An op launched in an autograd node; `inside` are the ranges open within the node."""
        number, via = sequence_number(node), "node"
        if number is None:
            number = self.number_of_child.get(id(node))
        if number is None:
            number, via = before, "node before"
        # Forward ops that run inside a node are activation checkpointing.
        recomputed = any(
            sequence_number(one) is not None and one["args"].get("Fwd thread id") == 0
            for one in inside
        )
        if via == "node" and inside and inside[0]["name"].startswith("aten::"):
            via = "input buffer"  # the engine adds up a gradient after the node itself
        told: Row = {"node": node["name"].split(": ")[-1], "recompute": recomputed}
        made = self.made_by.get(number) if number is not None else None
        if made is None:
            return told | {"reason": "no forward op of that sequence number"}
        _, mark, name = made
        if mark is None:
            return told | {"reason": f"forward op {name} outside TRUTH ranges"}
        unit = self.unit_of(module_of(mark))
        return told | {"true_unit": unit, "true_phase": "backward", "via": via, "truth_label": mark}


def truth(path: str | Path) -> Truth:
    """Truth of an annotated capture; rows come in order of the device start."""
    capture = read_capture(path)
    events = complete(capture["traceEvents"])
    host = [event for event in events if event.get("cat") in {"cpu_op", "user_annotation"}]
    steps = sorted((one for one in host if one["name"].startswith("ProfilerStep")), key=start_ns)
    injections = [one for one in host if one["name"].startswith("TRUTH::step")]
    main_tid = next(one["tid"] for one in host if one["name"].startswith("ProfilerStep"))
    launches = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in {"cuda_runtime", "cuda_driver"} and "correlation" in event["args"]
    }
    by_thread = collections.defaultdict(list)
    for event in host:
        by_thread[event["tid"]].append(event)
    ops = [event for event in events if event.get("cat") in KIND_OF_CATEGORY]
    points = collections.defaultdict(list)
    for op in ops:
        launch = launches.get(op["args"].get("correlation"))
        if launch is not None:
            points[launch["tid"]].append(dict(launch, device=op))
    context = launch_contexts(by_thread, points, main_tid)
    made_by = forward_ops(by_thread[main_tid])
    judge = Judge(unit_finder(host), made_by, numbers_of_children(by_thread, main_tid))
    rank = capture.get("distributedInfo", {}).get("rank")
    rows = []
    for op in sorted(ops, key=start_ns):
        launch = launches.get(op["args"].get("correlation"))
        row = {
            "rank": rank,
            "correlation": op["args"].get("correlation"),
            "name": op["name"],
            "kind": KIND_OF_CATEGORY[op["cat"]],
            "stream": op["args"].get("stream"),
            "start_us": op["ts"],
            "dur_us": op["dur"],
            "launch_us": None,
            "launch_tid": None,
            "on_main": None,
            "step": None,
            "injected": None,
            "scope": "compute",
            "true_unit": None,
            "true_phase": None,
            "via": None,
            "recompute": False,
            "fsdp_label": None,
            "fsdp_unit": None,
            "node": None,
            "truth_label": None,
            "reason": None,
        }
        rows.append(row)
        if launch is None:
            row["reason"] = "no launch"
            continue
        at_ns = start_ns(launch)
        row["launch_us"] = launch["ts"]
        row["launch_tid"] = launch["tid"]
        row["on_main"] = launch["tid"] == main_tid
        row["step"] = next((i for i, one in enumerate(steps) if holds(one, at_ns)), None)
        row["injected"] = next(
            (one["name"].endswith("injected") for one in injections if holds(one, at_ns)), None
        )
        is_open, before = context[id(op)]
        row.update(judge.judge(op["name"], is_open, before, on_main=row["on_main"]))
    return Truth(rows, capture["traceEvents"], made_by)


def holds(event: Event, at_ns: int) -> bool:
    return start_ns(event) <= at_ns <= end_ns(event)


def flow_check(found: Truth) -> tuple[int, int, int]:
    """Kineto's own arrows from forward to backward against ours: (agree, disagree, lost)."""
    arrows = [event for event in found.events if event.get("cat") == "fwdbwd"]
    forward = {event["id"]: event for event in arrows if event["ph"] == "s"}
    backward = {event["id"]: event for event in arrows if event["ph"] == "f"}
    events = complete(found.events)
    at = collections.defaultdict(list)
    for event in sorted((one for one in events if one.get("cat") == "cpu_op"), key=start_ns):
        at[event["tid"], event["ts"]].append(event)
    modules = sorted(
        (
            event
            for event in events
            if event["name"].startswith(("TRUTH::fwd", "TRUTH::loss"))
            and event.get("cat") == "user_annotation"
        ),
        key=start_ns,
    )
    agree = disagree = lost = 0
    for arrow, ends in backward.items():
        numbers = map(sequence_number, at[ends["tid"], ends["ts"]])
        number = next((one for one in numbers if one is not None), None)
        begins = forward.get(arrow)
        if number is None or begins is None:
            lost += 1
            continue
        ours = found.made_by.get(number, (0, None, ""))[1]
        theirs = next(
            (one["name"] for one in modules if one["ts"] <= begins["ts"] <= one["ts"] + one["dur"]),
            None,
        )
        agree, disagree = agree + (ours == theirs), disagree + (ours != theirs)
    return agree, disagree, lost


def write(rows: list[Row], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = dict.fromkeys(("rank", "correlation", "stream", "launch_tid", "step"), pa.int64())
    types |= dict.fromkeys(("start_us", "dur_us", "launch_us"), pa.float64())
    types |= dict.fromkeys(("on_main", "injected", "recompute"), pa.bool_())
    schema = pa.schema([(name, types.get(name, pa.string())) for name in rows[0]])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)


def strip(path: str, out: Path) -> None:
    """The same capture without any TRUTH:: range."""
    capture = read_capture(path)
    capture["traceEvents"] = [
        event
        for event in capture["traceEvents"]
        if not str(event.get("name", "")).startswith("TRUTH::")
    ]
    with gzip.open(out, "wt", compresslevel=9) as file:
        json.dump(capture, file, separators=(",", ":"))


def transfer(path: str, like: str) -> list[Row]:
    """Truth of an unannotated capture from its annotated twin; refuses unless their ops agree."""
    rows = truth(path).rows
    issued, issued_in_twin = (
        sorted(
            (row for row in one if row["step"] is not None),
            key=lambda row: (row["launch_us"] is None, row["launch_us"]),
        )
        for one in (rows, truth(like).rows)
    )
    # Launches of two threads may interleave differently: compare per thread.
    for on_main in (True, False):
        mine = [row for row in issued if row["on_main"] is on_main]
        lent = [row for row in issued_in_twin if row["on_main"] is on_main]
        for column in ("name", "fsdp_label", "stream"):
            if [row[column] for row in mine] != [row[column] for row in lent]:
                raise SystemExit(f"{path} and {like} are no twins: `{column}` differs")
        for row, other in zip(mine, lent, strict=True):
            row.update({column: other[column] for column in TRUE_COLUMNS})
    return rows


def summary(stem: str, rows: list[Row], flows: tuple[int, int, int] | None) -> str:
    compute = [row for row in rows if row["scope"] == "compute"]
    told = [row for row in compute if row["true_phase"] and not row["reason"]]
    told_us, compute_us = (sum(row["dur_us"] for row in some) for some in (told, compute))
    return (
        f"{stem:28} ops {len(rows):5} compute {len(compute):5}"
        f" told {100 * len(told) / len(compute):6.2f}% time {100 * told_us / compute_us:6.2f}%"
        f" via {dict(collections.Counter(row['via'] for row in told))}"
        f" recompute {sum(row['recompute'] for row in compute)} flows {flows}"
        f" {dict(collections.Counter(row['reason'] for row in compute if row['reason']))}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("captures", nargs="+")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--strip", type=Path)
    parser.add_argument("--like")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for path in options.captures:
        stem = Path(path).name.removesuffix(".json.gz")
        flows = None
        if options.like:
            rows = transfer(path, options.like)
        else:
            found = truth(path)
            rows, flows = found.rows, flow_check(found)
        write(rows, options.out / f"{stem}.truth.parquet")
        if options.strip:
            options.strip.mkdir(parents=True, exist_ok=True)
            strip(path, options.strip / f"{stem}.json.gz")
        print(summary(stem, rows, flows))


if __name__ == "__main__":
    main()
