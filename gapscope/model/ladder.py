"""What-if ladder: replay the step without one mechanism, or several, or after one user's change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gapscope.model.replay import Queue, Replayed, Scenario, Segments, replay, segments
from gapscope.model.rules.book import Edge
from gapscope.model.rules.fsdp2 import Capacity, edges

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gapscope.model.load import Batch

    Int = NDArray[np.int64]

MECHANISMS = ("R1", "R2", "R3")
RUNGS = tuple(
    "+".join(some) for n in range(4) for some in itertools.combinations(MECHANISMS, n)
)  # '', 'R1', ..., 'R1+R2+R3'


@dataclass(frozen=True)
class Setting:
    """A batch made ready for replay."""

    batch: Batch
    cuts: Segments
    edges: Sequence[Edge]
    transfer: Int
    queues: tuple[Queue, ...]
    capacity: Capacity = field(default_factory=Capacity)

    def play(self, scenario: Scenario) -> Replayed:
        return replay(self.batch, self.cuts, self.edges, self.transfer, scenario)


def scenario(removed: str, queues: tuple[Queue, ...]) -> Scenario:
    """Without R3 every collective ends at its own start + T; the last rung has the joins again."""
    gone = set(filter(None, removed.split("+")))
    return Scenario(
        late_launch="R1" not in gone,
        stream_order="R2" not in gone,
        queues=() if "R2" in gone else queues,
        skew="R3" not in gone or gone == set(MECHANISMS),
    )


def ladder(setting: Setting, rungs: Sequence[str] = RUNGS) -> dict[str, Replayed]:
    """Rungs of the ladder, by what they remove."""
    return {rung: setting.play(scenario(rung, setting.queues)) for rung in rungs}


def shapley(step_ns: dict[str, int]) -> dict[str, tuple[float, int, int]]:
    """Mechanism -> (Shapley value, least, most) of what its removal saves over all orders, ns.

    Of the mechanisms that the ladder has a rung for: R3 has none where ranks are missing.
    """
    result = {}
    known = [mechanism for mechanism in MECHANISMS if mechanism in step_ns]
    for mechanism in known:
        others = [m for m in known if m != mechanism]
        value = 0.0
        gains = []
        for n in range(len(known)):
            for some in itertools.combinations(others, n):
                before = "+".join(m for m in MECHANISMS if m in some)
                after = "+".join(m for m in MECHANISMS if m in some or m == mechanism)
                gain = step_ns[before] - step_ns[after]
                gains.append(gain)
                value += gain / (math.comb(len(others), n) * len(known))
        result[mechanism] = (value, min(gains), max(gains))
    return result


def interventions(setting: Setting) -> dict[str, Replayed]:
    """Single changes that a user can make, each replayed with everything else as executed."""
    as_run = Scenario(queues=setting.queues)
    batch = setting.batch
    found: dict[str, Replayed] = {}
    scatter_buffers = replace(
        setting,
        edges=edges(
            batch.program,
            replace(setting.capacity, reduce_inputs=setting.capacity.reduce_inputs + 1),
        ),
    )
    found["+1 reduce-scatter buffer"] = scatter_buffers.play(as_run)
    found["separate reduce-scatter communicator"] = setting.play(
        replace(
            as_run,
            links=tuple(
                f"{node.group} reduce" if node.kind == "RS" else node.group
                for node in batch.program
            ),
        )
    )
    found["all-gather issued at rule-ready time"] = _released(setting, {"AGIN", "AG"}).play(as_run)
    if any(node.kind == "AG" and node.phase == "backward" for node in batch.program):
        found["reshard_after_forward=False"] = _without_regather(setting).play(as_run)
    for depth in (1, 2):
        ahead = _prefetched(setting, depth)
        if ahead is not None:
            found[f"explicit prefetch depth {depth}"] = ahead.play(as_run)
    if setting.queues:
        found["more hardware queues"] = setting.play(Scenario())
    if len(batch.ranks) > 1:
        slow = slowest_rank(batch)
        if slow is not None:
            found[f"rank {batch.ranks[slow]} as fast as the median"] = _as_median(
                setting, slow
            ).play(as_run)
    found["no pauses between launches"] = _without_pauses(setting).play(as_run)
    return found


def slowest_rank(batch: Batch) -> int | None:
    """Rank that the others wait for longest at collectives; None if that is not twice its share."""
    import numpy as np

    waited = np.zeros(len(batch.ranks), np.int64)
    for node, groups in batch.joins.items():
        for group in groups:
            if len(group) > 1:
                arrivals = batch.node_start[node][:, group]
                in_order = np.sort(arrivals, axis=1)
                # One sleep a step makes a rank late once, by much; last by little is noise.
                apart = in_order[:, -1] - in_order[:, -2]
                np.add.at(waited, np.array(group)[arrivals.argmax(axis=1)], apart)
    if not waited.sum():
        return None
    share = waited / waited.sum()
    worst = int(share.argmax())
    return worst if share[worst] > min(2 / len(batch.ranks), 0.75) else None


def _released(setting: Setting, kinds: set[str]) -> Setting:
    """Ops of these kinds are released when the step begins."""
    released, last, first = (
        setting.cuts.released.copy(),
        setting.cuts.last_released.copy(),
        setting.cuts.first_released.copy(),
    )
    begin = setting.batch.window_start
    for i, segment in enumerate(setting.cuts.items):
        if setting.batch.program[segment.node].kind in kinds:
            released[i] = begin + setting.cuts.work[i]
            last[i] = begin + setting.cuts.until_last[i]
            first[i] = begin
    return replace(
        setting,
        cuts=replace(setting.cuts, released=released, last_released=last, first_released=first),
    )


def _without_regather(setting: Setting) -> Setting:
    """No AGIN', AG', AGOUT': parameters stay unsharded (memory!)."""
    keep = [
        i
        for i, segment in enumerate(setting.cuts.items)
        if not (
            (node := setting.batch.program[segment.node]).phase == "backward"
            and node.kind in ("AGIN", "AG", "AGOUT")
        )
    ]
    gone = {
        n
        for n, node in enumerate(setting.batch.program)
        if node.phase == "backward" and node.kind in ("AGIN", "AG", "AGOUT")
    }
    kept = [edge for edge in setting.edges if edge.before not in gone and edge.after not in gone]
    return replace(setting, cuts=_taken(setting.cuts, keep), edges=kept)


def _prefetched(setting: Setting, depth: int) -> Setting | None:
    """Forward gathers are issued `depth` units ahead, right after the asking unit's copy-out."""
    program = setting.batch.program
    gathers = [n for n, node in enumerate(program) if node.kind == "AG" and node.phase == "forward"]
    copies = [
        n for n, node in enumerate(program) if node.kind == "AGOUT" and node.phase == "forward"
    ]
    if len(gathers) < depth + 2 or len(copies) != len(gathers):
        return None
    items = setting.cuts.items
    place = {n: [i for i, x in enumerate(items) if x.node == n] for n in range(len(program))}
    moved: dict[int, list[int]] = {}
    pulled: dict[int, int] = {}
    # The root, where it has parameters, asks for nothing; each unit asks for the next ones.
    has_root = program[gathers[0]].unit == ""
    for k in range(int(has_root), len(gathers) - 1):
        after = place[copies[k]][-1]
        for wanted in gathers[k + 1 : k + 1 + depth]:
            copy_in = [
                n
                for n in range(wanted)
                if program[n].kind == "AGIN" and program[n].unit == program[wanted].unit
            ]
            segments = [i for n in (*copy_in[-1:], wanted) for i in place[n]]
            if min(segments) < after or segments[0] in pulled:
                continue
            moved.setdefault(after, []).extend(segments)
            for i in segments:
                pulled[i] = after
    order: list[int] = []
    for i in range(len(items)):
        if i not in pulled:
            order.append(i)
            order.extend(moved.get(i, ()))
    cuts = setting.cuts
    first, released, last = (
        cuts.first_released.copy(), cuts.released.copy(), cuts.last_released.copy(),
    )  # fmt: skip
    for i, after in pulled.items():
        earlier = cuts.first_released[i] - cuts.first_released[after]
        shift = earlier.clip(min=0)
        first[i] -= shift
        released[i] -= shift
        last[i] -= shift
    # The hooks gate a gather by the copy-outs issued before it: the rules of the new host order.
    position = {n: order.index(place[n][0]) for n in range(len(program)) if place[n]}
    nodes = sorted(position, key=position.__getitem__)
    kept = [
        Edge(nodes[e.before], nodes[e.after], e.rule, e.edge_class)
        for e in edges([program[n] for n in nodes], setting.capacity)
    ]
    ahead = replace(cuts, first_released=first, released=released, last_released=last)
    return replace(setting, cuts=_taken(ahead, order), edges=kept)


def _taken(cuts: Segments, order: Sequence[int]) -> Segments:
    keep = list(order)
    return Segments(
        tuple(cuts.items[i] for i in keep),
        cuts.work[keep], cuts.until_last[keep], cuts.last_length[keep], cuts.released[keep],
        cuts.last_released[keep], cuts.first_released[keep], cuts.floor,
    )  # fmt: skip


def _as_median(setting: Setting, rank: int) -> Setting:
    """One rank gets the median work and the median releases of the others."""
    import numpy as np

    others = [r for r in range(len(setting.batch.ranks)) if r != rank]
    begin = setting.batch.window_start
    changed = {}
    for name in ("work", "until_last"):
        values = getattr(setting.cuts, name).copy()
        values[:, :, rank] = np.median(values[:, :, others], axis=2)
        changed[name] = values
    for name in ("released", "last_released", "first_released"):
        values = getattr(setting.cuts, name).copy()
        relative = np.median((values - begin)[:, :, others], axis=2)
        values[:, :, rank] = np.minimum(values[:, :, rank], relative + begin[:, rank])
        changed[name] = values
    return replace(setting, cuts=replace(setting.cuts, **changed))


def _without_pauses(setting: Setting) -> Setting:
    """Times between launches above their 99th percentile are cut to the median: pauses go."""
    import numpy as np

    batch = setting.batch
    ops = dict(batch.ops)
    for (s, r), mine in batch.ops.items():
        issued = np.sort(mine.issued)
        apart = np.diff(issued)
        if len(apart) < 2:
            continue
        limit, usual = np.percentile(apart, 99), int(np.median(apart))
        cut = np.cumsum(np.where(apart > limit, apart - usual, 0))
        lead = int(issued[0] - batch.window_start[s, r])
        begun = max(0, lead - int(limit)) if lead > limit else 0
        saved = np.concatenate(([0], cut)) + begun
        at = np.searchsorted(issued, mine.issued, side="right") - 1
        ops[s, r] = replace(mine, issued=mine.issued - saved[at])
    # A pause may lie inside a segment: cut the segments anew.
    hurried = replace(batch, ops=ops)
    return replace(setting, batch=hurried, cuts=segments(hurried, setting.cuts.floor))
