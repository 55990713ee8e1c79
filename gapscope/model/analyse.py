"""Run the model over a run and put what it finds back into the run's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, Any

from gapscope.model import (
    bound,
    checks,
    configuration,
    contention,
    floors,
    ladder,
    queues,
    replay,
)
from gapscope.model.checks import Check
from gapscope.model.classify import classify, structural
from gapscope.model.load import Batch, load
from gapscope.model.reasons import NONE, OfStep, Producers, Reasons
from gapscope.model.rules import fsdp2
from gapscope.model.store import store
from gapscope.model.walk import Clock, Piece, Walker

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    from numpy.typing import NDArray

    Int = NDArray[np.int64]

_STREAMS = """
SELECT
    o.stream,
    mode(CASE u.node_kind
        WHEN 'AG' THEN 'all-gather' WHEN 'AGIN' THEN 'copy-in' WHEN 'RS' THEN 'reduce-scatter'
        WHEN 'POST' THEN 'reduce-scatter' WHEN 'AR' THEN 'all-reduce'
        WHEN 'COMM' THEN 'other collectives'
        ELSE 'compute'
    END)
FROM v1.op_unit AS u
INNER JOIN v1.device_op AS o ON u.rank = o.rank AND u.op_id = o.op_id
WHERE u.rank = $1 AND u.step_id = $2
GROUP BY o.stream
ORDER BY min(u.issue_rank)
"""

_SHARED_DEVICES = """
SELECT string_agg(rank::VARCHAR, ', ' ORDER BY rank), count(*)
FROM v1.rank WHERE device_uuid IS NOT NULL GROUP BY device_uuid HAVING count(*) > 1 ORDER BY 1
"""

_CONTESTED = """
SELECT 'rank ' || rank || ': ' || detail
FROM v1.rank_quality
WHERE check_name = 'anchor_agreement' AND status = 'fail'
ORDER BY rank
LIMIT 1
"""

_OFFSETS = """
SELECT rank, step_id, offset_ns FROM v1.step_clock
WHERE step_id IS NOT NULL AND offset_ns IS NOT NULL
"""

_WITHOUT_CLOCK = "SELECT rank FROM v1.rank_clock WHERE offset_ns IS NULL ORDER BY rank"

# Ranks that the captures lack, and whether nothing states who takes part in the collectives.
_MISSING = """
SELECT
    (SELECT coalesce(max(world_size), 0) - count(*) FROM v1.rank),
    bool_or(group_ranks IS NULL)
FROM v1.collective_instance
"""

_CLOCKS = """
SELECT max(c.residual_ns),
    bool_or(c.method LIKE 'matched ends%') AND min(r.hostname) IS DISTINCT FROM max(r.hostname)
FROM v1.rank_clock AS c INNER JOIN v1.rank AS r ON c.rank = r.rank
"""

CLASSES = ("R1", "R2", "R3", "H1", "H2", "floor", "unresolved", "carried")


@dataclass
class Results:
    """Rows by result table, in the order of the table's columns.

    What has a row for every node comes as whole columns.
    """

    rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    columns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # Steps that findings on "the run" are about, where they are not about all of its steps.
    only_steps: tuple[int, ...] = ()

    def add(self, table: str, *rows: tuple[Any, ...]) -> None:
        self.rows.setdefault(table, []).extend(rows)

    def check(self, found: Iterable[Check]) -> None:
        for one in found:
            for step in self.only_steps if one.step is None and self.only_steps else (one.step,):
                self.add(
                    "model_check",
                    (
                        one.name,
                        step,
                        one.status,
                        one.measured,
                        one.allowed,
                        one.detail,
                        one.withholds,
                    ),
                )


def analyse(con: duckdb.DuckDBPyConnection) -> None:
    """Fill the result tables of the run that `con` has open for writing.

    A run that no rule pack fits keeps empty tables and says why in `model_check`.
    """
    results = Results()
    contested = _contested_steps(con)
    if contested is not None:
        results.check([contested])
        store(con, results.rows, results.columns)
        return
    loaded = load(con)
    if not loaded.batches:
        results.check(
            [
                Check(
                    "rule_pack",
                    None,
                    "info",
                    None,
                    None,
                    _why_no_pack(con, loaded.left_out),
                    "bound",
                )
            ]
        )
    for step, reason in loaded.left_out.items():
        results.check([Check("program", step, "warn", None, None, reason, "bound")])
    clock = _clock(con)
    lost = [row[0] for row in con.execute(_WITHOUT_CLOCK).fetchall()]
    if lost and loaded.batches:
        named = ", ".join(map(str, lost[:8])) + (", ..." if len(lost) > 8 else "")
        results.check(
            [Check("rank_clock", None, "warn", float(len(lost)), 0.0,
                   f"nothing relates ranks {named} to the others' clocks: they are not in the "
                   "model", None)]
        )  # fmt: skip
    batches = [part for batch in loaded.batches for part in replay.alike(batch)]
    slower = [contention.stretch(batch) for batch in batches]
    known = [factor for factor in slower if factor is not None]
    usual = median(known) if known else None
    for batch, factor in zip(batches, slower, strict=True):
        if len(batches) > 1:
            results.only_steps = tuple(batch.steps)
        measured = _Contention(
            usual if factor is None else factor, in_these_steps=factor is not None
        )
        _Analysis(con, batch, results, clock, measured).run()
    store(con, results.rows, results.columns)


def _contested_steps(con: duckdb.DuckDBPyConnection) -> Check | None:
    """What forbids every bound where two anchors disagree on what a step is."""
    row = con.execute(_CONTESTED).fetchone()
    return None if row is None else Check("step_anchor", None, "fail", None, None, row[0], "bound")


def _why_no_pack(con: duckdb.DuckDBPyConnection, left_out: dict[int, str]) -> str:
    labels = con.execute("SELECT count(*) FROM v1.fsdp_label WHERE verb <> 'optimizer'").fetchone()
    clocks = con.execute("SELECT count(*) FROM v1.rank_clock WHERE offset_ns IS NULL").fetchone()
    steps = con.execute("SELECT count(*) FROM v1.step").fetchone()
    if not labels or not labels[0]:
        return "no FSDP2 labels in the capture, and there is no rule pack for anything else"
    if clocks and clocks[0]:
        return "the clocks of the ranks cannot be compared"
    if not steps or not steps[0]:
        return "FSDP2 labels, but no steps"
    return "FSDP2 labels, but " + (next(iter(left_out.values()), "no step with a program"))


@dataclass(frozen=True)
class _Clock:
    """What was added to the times of each rank and step, and what that can tell."""

    offsets: dict[tuple[int, int], int]
    residual_ns: int
    # Hosts whose clocks were put together by ends of collectives cannot measure how ends differ.
    tells_ends: bool


def _clock(con: duckdb.DuckDBPyConnection) -> _Clock:
    offsets = {(rank, step): offset for rank, step, offset in con.execute(_OFFSETS).fetchall()}
    row = con.execute(_CLOCKS).fetchone()
    residual, is_across_hosts = row or (None, None)
    return _Clock(offsets, int(residual or 0), not is_across_hosts)


@dataclass(frozen=True)
class _Contention:
    """Times longer that compute runs beside communication; steps that never overlap cannot tell."""

    factor: float | None
    in_these_steps: bool


class _Analysis:
    """One batch: steps that ran one program on all ranks."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        batch: Batch,
        results: Results,
        clock: _Clock,
        contention_found: _Contention,
    ) -> None:
        self.con = con
        self.contention = contention_found
        self.batch = batch
        self.results = results
        self.residual_ns = clock.residual_ns
        self.offsets = clock.offsets
        self.found = configuration.detect(batch.program)
        self.declared = configuration.declared(
            dict(con.execute("SELECT name, value FROM v1.run_option").fetchall())
        )
        self.capacity = replace(
            fsdp2.Capacity(), reduce_inputs=max(1, int(self.declared.get("reduce_inputs", 1)))
        )
        self.edges = fsdp2.edges(batch.program, self.capacity)
        self.weights = bound.weights(batch, by_ends=clock.tells_ends)
        missing, of_unknown = con.execute(_MISSING).fetchone() or (0, False)
        # Whether every rank that takes part in a collective is in the captures.
        self.sees_all = not batch.unmatched and not (missing > 0 and of_unknown)

    def run(self) -> None:
        batch = self.batch
        fit = self._fit() + checks.clocks(batch, self.residual_ns)
        self.results.check(fit)
        if any(check.withholds == "bound" for check in fit):
            return
        resources = bound.resource_edges(batch.program)
        found = bound.schedule(batch.program, [*self.edges, *resources], self.weights)
        held = checks.violations(batch, self.edges)
        held += checks.order(batch, found.t_lb)
        held += checks.coverage(self.con, batch.steps)
        self.results.check(held)
        withheld = {check.step for check in held if check.withholds == "bound"}
        usable = [s for s, step in enumerate(batch.steps) if not withheld & {None, step}]
        if not usable:
            return
        self._bounds(found, resources, usable)
        self._explain(found, usable)

    def _fit(self) -> list[Check]:
        """Whether the pack describes this program at all."""
        batch = self.batch
        kinds = Counter(node.kind for node in batch.program)
        # What runs beside the units (a loss that is averaged) takes no rule away and breaks none.
        foreign = [
            node
            for node in batch.program
            if node.kind == "COMM" and node.phase != "optimizer" and node.unit
        ]
        found = []
        if foreign:
            found.append(
                Check("rule_pack", None, "warn", float(len(foreign)), 0.0,
                      f"{len(foreign)} collectives a step inside forward or backward of units are "
                      "not FSDP2's: the pack knows no rule for them", "bound")
            )  # fmt: skip
        elif not kinds["AG"] and not kinds["RS"]:
            found.append(
                Check(
                    "rule_pack",
                    None,
                    "warn",
                    None,
                    None,
                    "FSDP2 labels without a gather or a reduction",
                    "bound",
                )
            )
        else:
            found.append(
                Check("rule_pack", None, "ok", None, None,
                      f"{fsdp2.NAME}: {len(batch.program)} nodes a step, {kinds['AG']} gathers, "
                      f"{kinds['RS']} reduce-scatters; one program on {len(batch.ranks)} ranks and "
                      f"{len(batch.steps)} steps", None)
            )  # fmt: skip
        wrong = configuration.differences(self.found, self.declared)
        if wrong:
            found.append(
                Check(
                    "configuration", None, "fail", float(len(wrong)), 0.0,
                    "what gapscope.toml declares is not what ran: " + "; ".join(wrong), "bound",
                )
            )  # fmt: skip
        else:
            said = ", as declared" if self.declared else ", read off the labels"
            found.append(
                Check("configuration", None, "ok", None, None, self.found.words() + said, None)
            )
        shared = self.con.execute(_SHARED_DEVICES).fetchall()
        for ranks, uuid_count in shared:
            found.append(
                Check(
                    "shared_device", None, "info", float(uuid_count), None,
                    f"ranks {ranks} share a device: whether their kernels held each other up is "
                    "what replay_error and unresolved tell", None,
                )
            )  # fmt: skip
        if len(batch.explained) < len(batch.ranks):
            named = [batch.ranks[r] for r in batch.explained]
            some = ", ".join(map(str, named[:8])) + (", ..." if len(named) > 8 else "")
            found.append(
                Check("explained_ranks", None, "info", float(len(named)), float(len(batch.ranks)),
                      f"gaps of {len(named)} of {len(batch.ranks)} ranks are classified ({some}): "
                      "those that others waited for most, the one that waited longest, and an even "
                      "spread; the bound and the what-ifs are those of all ranks", None)
            )  # fmt: skip
        if not self.sees_all:
            lack = (
                f"{len(batch.unmatched)} collectives of the program lack participants"
                if batch.unmatched
                else "ranks were not captured, and nothing says which collectives they take part in"
            )
            found.append(
                Check("collectives_matched", None, "warn", float(len(batch.unmatched)), 0.0,
                      f"{lack}: "
                      "waits for other ranks are inside their durations, so R3 is unknown, the "
                      "bound is that of the captured ranks alone, and H1 and H2 hold such waits",
                      None)
            )  # fmt: skip
        return found

    def _bounds(self, found: bound.Schedule, resources: list[Any], usable: Sequence[int]) -> None:
        batch, program, weights = self.batch, self.batch.program, self.weights

        def other(edges: Sequence[Any]) -> Int:
            return bound.schedule(program, edges, weights).t_lb

        plus_one = other([*fsdp2.edges(program, self.capacity.plus_one()), *resources])
        free_engine = other([*self.edges, *bound.resource_edges(program, engine=False)])
        free_link = other([*self.edges, *bound.resource_edges(program, link=False)])
        shortest = bound.schedule(
            program, [*self.edges, *resources], bound.weights(batch, by_ends=False)
        ).t_lb
        engine = weights.duration[[n.kind in fsdp2.ENGINE for n in program]].sum(axis=0)
        groups = {node.group for node in program if node.kind in fsdp2.COLLECTIVES}
        link = max(
            (
                weights.duration[
                    [n.kind in fsdp2.COLLECTIVES and n.group == group for n in program]
                ].sum(axis=0)
                for group in groups
            ),
            key=lambda total: int(total.max()),
        )
        slack = bound.slack(program, [*self.edges, *resources], weights, found)
        for s in usable:
            chain = bound.binding_chain(program, [*self.edges, *resources], weights, found, s)
            place = {(link.rank, link.node): (i, link.rule) for i, link in enumerate(chain)}
            for r, rank in enumerate(batch.ranks):
                self.results.add(
                    "step_bound",
                    (rank, batch.steps[s], *(int(x[s, r]) for x in (
                        found.t_lb, plus_one, free_engine, free_link, shortest, engine, link
                    ))),
                )  # fmt: skip
            self.results.columns.setdefault("bound_node", []).append(
                self._nodes(found, slack, place, s)
            )

    def _nodes(
        self,
        found: bound.Schedule,
        slack: Int,
        place: dict[tuple[int, int], tuple[int, str | None]],
        s: int,
    ) -> dict[str, Any]:
        """The schedule of a step: rank by rank, node by node."""
        import numpy as np
        import pyarrow as pa

        ranks, nodes = len(self.batch.ranks), len(self.batch.program)
        # Where in the chain; most nodes are not in it.
        position: list[int | None] = [None] * (ranks * nodes)
        rule: list[str | None] = [None] * (ranks * nodes)
        for (r, n), (i, its_rule) in place.items():
            position[r * nodes + n], rule[r * nodes + n] = i, its_rule
        names = pa.array([node.name for node in self.batch.program])
        number = np.tile(np.arange(nodes), ranks)
        return {
            "rank": np.repeat(self.batch.ranks, nodes),
            "step_id": np.full(ranks * nodes, self.batch.steps[s]),
            "node_id": number,
            "node": names.take(pa.array(number)),
            "start_ns": found.start[:, s].T.ravel(),
            "end_ns": found.end[:, s].T.ravel(),
            "slack_ns": slack[:, s].T.ravel(),
            "chain_position": position,
            "chain_rule": rule,
        }

    def _explain(self, found: bound.Schedule, usable: Sequence[int]) -> None:
        batch = self.batch
        floor = floors.replay_floor(batch)
        is_refused: set[int] = set()
        queue_found = queues.Found((), ())
        setting: ladder.Setting | None = None
        try:
            cuts = replay.segments(batch, floor)
        except replay.DifferentSegmentsError:
            self.results.check(
                [Check("replay_error", None, "fail", None, None,
                       "ranks issued the ops of one program in different orders",
                       "verdict")]
            )  # fmt: skip
            is_refused = set(range(len(batch.steps)))
        else:
            queue_found = queues.detect(batch, cuts, self.edges, self.weights.duration)
            setting = ladder.Setting(
                batch, cuts, self.edges, self.weights.duration, queue_found.queues, self.capacity
            )
            played = setting.play(ladder.scenario("", queue_found.queues))
            off = checks.replay_error(batch, played.step)
            self.results.check(check for s, check in enumerate(off) if s in usable)
            is_refused = {s for s, check in enumerate(off) if check.withholds}
        is_refused |= self._pieces(found, queue_found, floor, usable, is_refused)
        if setting is not None:
            self._ladder(setting, [s for s in usable if s not in is_refused])

    def _pieces(
        self,
        found: bound.Schedule,
        queue_found: queues.Found,
        floor: int,
        usable: Sequence[int],
        is_refused: set[int],
    ) -> set[int]:
        """Classify every gap; returns the steps whose verdict is refused for it."""
        batch = self.batch
        producers = Producers(batch.program, self.edges)
        of_step = {s: OfStep(batch, producers, queue_found.queues, s) for s in usable}
        start_floors = floors.start_floors(
            reasons[r] for reasons in of_step.values() for r in batch.explained
        )
        names = self._stream_names()
        first = batch.steps[0]
        for queue in queue_found.queues:
            pairs = [one for one in queue_found.evidence if one.streams <= queue.streams]
            self.results.add(
                "hardware_queue",
                (" + ".join(names[stream] for stream in sorted(queue.streams)), queue.until,
                 sum(one.count for one in pairs), sum(one.counter_examples for one in pairs),
                 first),
            )  # fmt: skip
        floors_ns = {**start_floors, "replay": floor}
        self.results.add("launch_floor", *((kind, ns, first) for kind, ns in floors_ns.items()))
        is_structural = structural(batch.program, self.edges)
        clock = Clock(start_floors, self.residual_ns)
        refused = set()
        for s in usable:
            reasons = of_step.pop(s)
            walker = Walker(batch, s, reasons, clock)
            of_rank = {
                r: classify(batch, found, walker, reasons[r], is_structural, s, r)
                for r in batch.explained
            }
            share = max(
                sum(p.length for p in pieces if p.gap_class == "unresolved")
                / int(batch.observed[s, r])
                for r, pieces in of_rank.items()
            )
            check = checks.unresolved(batch.steps[s], share)
            self.results.check([check])
            if check.withholds:
                refused.add(s)
            for r, pieces in of_rank.items():
                self._rows(found, reasons[r], pieces, s, r, s in refused | is_refused)
        return refused

    def _stream_names(self) -> list[str]:
        """Streams of the first rank, `7 (compute)`, in the order in which the program uses them."""
        at = [self.batch.ranks[0], self.batch.steps[0]]
        return [f"{stream} ({role})" for stream, role in self.con.execute(_STREAMS, at).fetchall()]

    def _rows(
        self,
        found: bound.Schedule,
        reasons: Reasons,
        pieces: list[Piece],
        s: int,
        r: int,
        is_provisional: bool,
    ) -> None:
        batch = self.batch
        rank, step = batch.ranks[r], batch.steps[s]
        total: Counter[str] = Counter()
        for piece in pieces:
            total[piece.gap_class] += piece.length
        observed, t_lb = int(batch.observed[s, r]), int(found.t_lb[s, r])
        compute = observed - sum(total.values())
        self.results.add(
            "step_gap",
            (rank, step, observed, t_lb, observed - t_lb, compute, total["work"],
             *(self._known(name, total[name]) for name in CLASSES),
             bool(batch.is_boundary[s]), is_provisional),
        )  # fmt: skip
        program = batch.program
        own = self.offsets[rank, step]
        for piece in pieces:
            cause = piece.cause_rank if piece.cause_rank != NONE else r
            theirs = self.offsets[batch.ranks[cause], step]
            begin, end = (
                (piece.cause_start, piece.cause_end)
                if piece.cause_rank != NONE
                else (piece.start, piece.end)
            )
            self.results.add(
                "gap_piece",
                (
                    rank, step, piece.start - own, piece.end - own, piece.gap_class,
                    piece.sub_cause or None,
                    reasons.op_id[piece.op] if piece.op != NONE else None,
                    program[reasons.node[piece.op]].name if piece.op != NONE else None,
                    batch.ranks[piece.culprit] if piece.culprit != NONE else None,
                    piece.rule or None,
                    program[piece.awaited].name if piece.awaited != NONE else None,
                    piece.is_hidden, batch.ranks[cause], begin - theirs, end - theirs,
                    is_provisional,
                ),
            )  # fmt: skip

    def _known(self, name: str, length_ns: int) -> int | None:
        """Waits for ranks that were not captured lie inside transfers: none seen is not none."""
        return None if name == "R3" and not length_ns and not self.sees_all else length_ns

    def _ladder(self, setting: ladder.Setting, usable: Sequence[int]) -> None:
        batch = self.batch
        blocked = checks.blocking_sync(self.con, batch.steps) + checks.run_ahead(batch)
        self.results.check(blocked)
        stopped = {check.step for check in blocked if check.withholds}
        usable = [s for s in usable if batch.steps[s] not in stopped]
        if not usable:
            return
        factor = self.contention.factor
        if factor is not None:
            where = (
                "" if self.contention.in_these_steps else ", as measured in the run's other steps"
            )
            self.results.check(
                [Check("contention", None, "info", factor, None,
                       f"compute beside communication runs x{factor:.2f} of the same compute alone"
                       f"{where}", None)]
            )  # fmt: skip
        rungs = [rung for rung in ladder.RUNGS if "R3" not in rung or self.sees_all]
        for removed, played in ladder.ladder(setting, rungs).items():
            slow = (
                contention.stretched(
                    setting, ladder.scenario(removed, setting.queues), played, factor
                )
                if factor is not None
                else None
            )
            for s, r in self._cells(usable):
                stretched = int(slow.step[s, r]) if slow is not None else None
                self.results.add(
                    "what_if",
                    (batch.ranks[r], batch.steps[s], removed, int(played.step[s, r]), stretched),
                )
        for change, played in ladder.interventions(setting).items():
            for s, r in self._cells(usable):
                self.results.add(
                    "what_if_change",
                    (batch.ranks[r], batch.steps[s], change, int(played.step[s, r])),
                )

    def _cells(self, usable: Sequence[int]) -> list[tuple[int, int]]:
        return [(s, r) for s in usable for r in range(len(self.batch.ranks))]
