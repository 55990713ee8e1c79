"""Read what the model needs from a run: steps of one program, their nodes and ops on one clock."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gapscope.model.rules.book import Node

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    Int = NDArray[np.int64]
    Bool = NDArray[np.bool_]

_NODES = """
SELECT p.rank, p.step_id, p.node_id, p.node_kind, p.unit, p.phase, p.turn,
    coalesce(p.group_name, '') AS group_name,
    p.start_ns + c.offset_ns AS start_ns, p.end_ns + c.offset_ns AS end_ns, p.busy_ns, p.compute_ns
FROM v1.program_node AS p
INNER JOIN v1.step_clock AS c ON p.rank = c.rank AND p.step_id = c.step_id
WHERE c.offset_ns IS NOT NULL
ORDER BY p.step_id, p.rank, p.node_id
"""

_STEPS = """
SELECT s.rank, s.step_id, s.is_boundary, s.source, s.label,
    s.device_start_ns + c.offset_ns AS start_ns, s.device_end_ns + c.offset_ns AS end_ns
FROM v1.step AS s
INNER JOIN v1.step_clock AS c ON s.rank = c.rank AND s.step_id = c.step_id
WHERE c.offset_ns IS NOT NULL
ORDER BY s.step_id, s.rank
"""

_JUMPS = """
SELECT step_id, string_agg(rank::VARCHAR, ', ' ORDER BY rank)
FROM v1.step_clock
WHERE jump_ns IS NOT NULL
GROUP BY step_id
"""

_OPS = """
SELECT u.rank, u.step_id, u.op_id, u.node_id, o.stream,
    o.start_ns + c.offset_ns AS start_ns, o.end_ns + c.offset_ns AS end_ns,
    o.issued_ns + c.offset_ns AS issued_ns,
    o.kind = 'memcpy' AS is_copy, o.time_class IN ('compute', 'graph') AS is_compute,
    o.time_class = 'communication' AS is_collective, coalesce(o.name_id, 0) AS name_id
FROM (FROM v1.op_unit WHERE rank BETWEEN $1 AND $2) AS u
INNER JOIN v1.device_op AS o ON u.rank = o.rank AND u.op_id = o.op_id
INNER JOIN v1.step_clock AS c ON u.rank = c.rank AND u.step_id = c.step_id
WHERE c.offset_ns IS NOT NULL
ORDER BY u.step_id, u.rank, u.issue_rank
"""

_COUNTS = """
SELECT u.step_id, count(*) AS ops
FROM v1.op_unit AS u
WHERE u.step_id IS NOT NULL
GROUP BY u.step_id
"""

_COLLECTIVES = """
SELECT u.rank, u.step_id, u.node_id, i.seq, i.group_name, i.group_ranks, i.is_matched,
    i.participants
FROM v1.op_unit AS u
INNER JOIN v1.collective_instance AS i ON u.rank = i.rank AND u.op_id = i.op_id
INNER JOIN v1.step_clock AS c ON u.rank = c.rank AND u.step_id = c.step_id
WHERE c.offset_ns IS NOT NULL AND u.node_kind IN ('AG', 'RS', 'AR', 'COMM')
ORDER BY u.step_id, u.rank, u.node_id
"""


# Explaining takes 0.05 to 0.1 ms an op: above this many, some ranks stand for all.
MOST_WALKED_OPS = 1_000_000
LEAST_EXPLAINED = 8
# Ranks are read this many at a time, and kept in fewer bytes than they are read in.
_RANKS_AT_ONCE = 32


@dataclass(frozen=True)
class Ops:
    """Device ops of one rank and step in host issue order, one array entry an op, aligned ns.

    Of a rank that is not explained `name_id` is empty.
    """

    op_id: Int
    node: Int
    stream: Int
    start: Int
    end: Int
    issued: Int
    is_copy: Bool
    is_compute: Bool
    is_collective: Bool
    name_id: Int

    def __len__(self) -> int:
        return len(self.node)


@dataclass(frozen=True)
class Batch:
    """Steps of which every rank ran one program; arrays are [step, rank] or [node, step, rank]."""

    ranks: list[int]
    steps: list[int]
    is_boundary: Bool
    program: tuple[Node, ...]
    window_start: Int
    window_end: Int
    node_start: Int
    node_end: Int
    node_busy: Int
    node_compute: Int
    # Collective node -> groups of positions in `ranks` that join in it; a rank alone stands alone.
    joins: dict[int, list[list[int]]]
    # Collective nodes of which ranks are missing or do not agree.
    unmatched: set[int]
    ops: dict[tuple[int, int], Ops] = field(repr=False)
    # Positions of the ranks of which every gap is explained and from whose ops the model estimates.
    explained: tuple[int, ...]

    @property
    def cells(self) -> list[tuple[int, int]]:
        """(step, rank) of the explained ranks."""
        return [(s, r) for s in range(len(self.steps)) for r in self.explained]

    @property
    def observed(self) -> Int:
        """Length of each device window [step, rank], ns."""
        return self.window_end - self.window_start

    def part(self, positions: list[int]) -> Batch:
        """The batch of the steps at these positions alone."""
        place = {s: here for here, s in enumerate(positions)}
        return replace(
            self,
            steps=[self.steps[s] for s in positions],
            is_boundary=self.is_boundary[positions],
            window_start=self.window_start[positions],
            window_end=self.window_end[positions],
            node_start=self.node_start[:, positions],
            node_end=self.node_end[:, positions],
            node_busy=self.node_busy[:, positions],
            node_compute=self.node_compute[:, positions],
            ops={(place[s], r): ops for (s, r), ops in self.ops.items() if s in place},
        )


@dataclass(frozen=True)
class Loaded:
    """Batches of a run, and why other steps are in none."""

    batches: list[Batch]
    left_out: dict[int, str]


def load(con: duckdb.DuckDBPyConnection) -> Loaded:
    """Everything the model reads of a run; no rows where the run has no FSDP2 labels."""
    nodes = _arrays(con, _NODES)
    steps = _arrays(con, _STEPS)
    if not len(nodes["rank"]) or not len(steps["rank"]):
        return Loaded([], {})
    ranks = sorted({int(rank) for rank in steps["rank"]})
    window = {
        (int(s), int(r)): (int(a), int(b), bool(is_boundary))
        for s, r, a, b, is_boundary in zip(
            steps["step_id"], steps["rank"], steps["start_ns"], steps["end_ns"],
            steps["is_boundary"],
            strict=True,
        )
    }  # fmt: skip
    jumped = dict(con.execute(_JUMPS).fetchall())
    numbers = _numbers(steps)
    programs = _programs(nodes)
    joins = _joins(con, ranks)
    left_out: dict[int, str] = {}
    # Steps go together when they ran one program and their collectives joined the same ranks.
    members: dict[tuple[tuple[Node, ...], Any], list[int]] = {}
    for step in sorted({step for step, _ in window} | set(jumped)):
        here = {programs.get((step, rank)) for rank in ranks}
        if step in jumped:
            left_out[step] = f"a clock jumps in this step or beside it: rank {jumped[step]}"
        elif any((step, rank) not in window for rank in ranks):
            left_out[step] = "not every rank has this step"
        elif len(said := {numbers.get((step, rank)) for rank in ranks}) > 1:
            left_out[step] = (
                "ranks take their steps from different anchors"
                if None in said
                else "ranks began to capture at different steps: their labels number this one "
                + ", ".join(str(numbers[step, rank]) for rank in ranks[:4])
                + (", ..." if len(ranks) > 4 else "")
            )
        elif any(window[step, rank][0] >= window[step, rank][1] for rank in ranks):
            left_out[step] = "a rank ran nothing on the device in this step"
        elif None in here:
            left_out[step] = "not every rank has labels of FSDP2 in this step"
        elif len(here) > 1:
            left_out[step] = "ranks ran different programs"
        else:
            pattern = str(sorted(joins.get(step, {}).items()))
            members.setdefault((programs[step, ranks[0]], pattern), []).append(step)
    counts = _arrays(con, _COUNTS)
    ops_of_step = dict(zip(counts["step_id"].tolist(), counts["ops"].tolist(), strict=True))
    batches = [
        _batch(con, program, member, ranks, window, nodes, ops_of_step, joins)
        for (program, _), member in members.items()
    ]
    return Loaded(batches, left_out)


def _arrays(con: duckdb.DuckDBPyConnection, sql: str, *values: int) -> dict[str, Any]:
    return con.execute(sql, list(values)).fetchnumpy()


def _numbers(steps: dict[str, Any]) -> dict[tuple[int, int], int]:
    """(step, rank) -> number that the step's own label gives it, where the anchor numbers steps."""
    found = {}
    for step, rank, source, label in zip(
        steps["step_id"], steps["rank"], steps["source"], steps["label"], strict=True
    ):
        number = re.search(r"(\d+)$", str(label))
        if source in ("profiler_step", "nvtx_step", "gapscope_step") and number:
            found[int(step), int(rank)] = int(number[1])
    return found


def _spans(arrays: dict[str, Any]) -> list[tuple[int, int, slice]]:
    """(step, rank, rows) of each run of equal (step, rank)."""
    import numpy as np

    step, rank = arrays["step_id"], arrays["rank"]
    if not len(step):
        return []
    cuts = np.flatnonzero((np.diff(step) != 0) | (np.diff(rank) != 0)) + 1
    edges = [0, *cuts.tolist(), len(step)]
    return [(int(step[a]), int(rank[a]), slice(a, b)) for a, b in pairwise(edges)]


def _programs(nodes: dict[str, Any]) -> dict[tuple[int, int], tuple[Node, ...]]:
    made: dict[tuple[str, str, str, int, str], Node] = {}
    programs = {}
    for step, rank, rows in _spans(nodes):
        program = []
        # Ranks may be in groups of different names; what must agree is which collectives share one.
        groups: dict[str, str] = {"": ""}
        for kind, unit, phase, turn, group in zip(
            nodes["node_kind"][rows], nodes["unit"][rows], nodes["phase"][rows],
            nodes["turn"][rows].tolist(), nodes["group_name"][rows],
            strict=True,
        ):  # fmt: skip
            key = (kind, unit, phase, turn, groups.setdefault(group, f"group {len(groups)}"))
            if key not in made:
                made[key] = Node(*key)
            program.append(made[key])
        programs[step, rank] = tuple(program)
    return programs


def _by_appearance(stream: Int) -> Int:
    """Streams by the order in which a program first uses them: ids differ between ranks."""
    import numpy as np

    ids, first, inverse = np.unique(stream, return_index=True, return_inverse=True)
    number = np.empty(len(ids), np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(ids))
    numbered: Int = number[inverse.reshape(-1)]
    return numbered


def _ops(
    con: duckdb.DuckDBPyConnection, steps: list[int], ranks: list[int], explained: tuple[int, ...]
) -> dict[tuple[int, int], Ops]:
    """(position of the step, position of the rank) -> its ops."""
    import numpy as np

    row_of = {step: position for position, step in enumerate(steps)}
    column_of = {rank: position for position, rank in enumerate(ranks)}
    is_whole = set(explained)
    none: Any = np.empty(0, np.int64)
    found = {}
    for first in range(0, len(ranks), _RANKS_AT_ONCE):
        some = ranks[first : first + _RANKS_AT_ONCE]
        arrays = _arrays(con, _OPS, some[0], some[-1])
        issued = np.minimum(arrays["issued_ns"], arrays["start_ns"])
        for step, rank, rows in _spans(arrays):
            if step not in row_of:
                continue
            column = column_of[rank]
            names = arrays["name_id"][rows].copy() if column in is_whole else none
            # Copies: a slice would keep the columns of all these ranks alive.
            found[row_of[step], column] = Ops(
                arrays["op_id"][rows].copy(), arrays["node_id"][rows].astype(np.int32),
                _by_appearance(arrays["stream"][rows]).astype(np.int32),
                arrays["start_ns"][rows].copy(), arrays["end_ns"][rows].copy(),
                issued[rows].copy(), arrays["is_copy"][rows].copy(),
                arrays["is_compute"][rows].copy(), arrays["is_collective"][rows].copy(), names,
            )  # fmt: skip
    return found


def _joins(
    con: duckdb.DuckDBPyConnection, ranks: list[int]
) -> dict[int, dict[int, tuple[list[list[int]], bool]]]:
    """Step -> node -> (groups of rank positions, all matched).

    Ranks join only where all participants of an instance ran it as this node of this step: those
    of another step, or without a clock, would stretch the transfer by their own waiting.
    """
    place = {rank: position for position, rank in enumerate(ranks)}
    found: dict[int, dict[int, dict[Any, list[int]]]] = {}
    wanted: dict[Any, int] = {}
    for row in con.execute(_COLLECTIVES).fetchall():
        rank, step, node, seq, group, members, is_matched, participants = row
        key = (group, members, seq) if is_matched else (rank,)
        wanted[key] = participants if is_matched else 0
        found.setdefault(step, {}).setdefault(node, {}).setdefault(key, []).append(place[rank])
    joined: dict[int, dict[int, tuple[list[list[int]], bool]]] = {}
    for step, nodes in found.items():
        for node, by_instance in nodes.items():
            groups: list[list[int]] = []
            is_complete = True
            for key, here in by_instance.items():
                if len(here) == wanted[key]:
                    groups.append(here)
                else:
                    groups += [[position] for position in here]
                    is_complete = False
            joined.setdefault(step, {})[node] = (sorted(groups), is_complete)
    return joined


def _batch(
    con: duckdb.DuckDBPyConnection,
    program: tuple[Node, ...],
    steps: list[int],
    ranks: list[int],
    window: dict[tuple[int, int], tuple[int, int, bool]],
    nodes: dict[str, Any],
    ops_of_step: dict[int, int],
    joins: dict[int, dict[int, tuple[list[list[int]], bool]]],
) -> Batch:
    import numpy as np

    wanted = set(steps)
    rows = np.concatenate(
        [np.arange(rows.start, rows.stop) for step, _, rows in _spans(nodes) if step in wanted]
    )

    def grid(name: str) -> Int:
        shape = (len(steps), len(ranks), len(program))
        return np.ascontiguousarray(nodes[name][rows].reshape(shape).transpose(2, 0, 1))

    def windows(position: int) -> Any:
        return np.array([[window[step, rank][position] for rank in ranks] for step in steps])

    # Steps of one batch have one pattern of joins.
    of_step = joins.get(steps[0], {})
    joined = {node: groups for node, (groups, _) in of_step.items()}
    op_count = sum(ops_of_step[step] for step in steps)
    explained = representatives(len(ranks), op_count, joined, grid("start_ns"))
    return Batch(
        ranks=ranks,
        steps=steps,
        is_boundary=windows(2).any(axis=1),
        program=program,
        window_start=windows(0),
        window_end=windows(1),
        node_start=grid("start_ns"),
        node_end=grid("end_ns"),
        node_busy=grid("busy_ns"),
        node_compute=grid("compute_ns"),
        joins=joined,
        unmatched={
            node
            for step in steps
            for node, (_, is_matched) in joins.get(step, {}).items()
            if not is_matched
        },
        ops=_ops(con, steps, ranks, explained),
        explained=explained,
    )


def representatives(
    ranks: int, op_count: int, joins: dict[int, list[list[int]]], node_start: Int
) -> tuple[int, ...]:
    """Ranks to explain, as positions: all, or of a large run those that matter and a spread.

    Explaining takes time for every op. Of a run with too many for that, half of the places go to
    the ranks that made the others wait longest at collectives, one to the rank that waited longest,
    the rest are spread evenly over all.
    """
    import numpy as np

    places = max(LEAST_EXPLAINED, MOST_WALKED_OPS * ranks // max(1, op_count))
    if places >= ranks:
        return tuple(range(ranks))
    made_wait, waited = np.zeros(ranks), np.zeros(ranks)
    for node, groups in joins.items():
        for group in groups:
            if len(group) > 1:
                starts = node_start[node][:, group]
                ordered = np.sort(starts, axis=1)
                last = np.array(group)[starts.argmax(axis=1)]
                np.add.at(made_wait, last, ordered[:, -1] - ordered[:, -2])
                waited[group] += (ordered[:, -1:] - starts).sum(axis=0)
    chosen = np.argsort(-made_wait, kind="stable")[: places // 2].tolist()
    spread = np.linspace(0, ranks - 1, places).astype(int).tolist()
    for rank in (int(waited.argmax()), *spread):
        if rank not in chosen and len(chosen) < places:
            chosen.append(rank)
    return tuple(sorted(chosen))
