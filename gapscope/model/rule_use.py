"""How often each rule of a pack occurs in a run, fails there, and binds.

Instances are counted in the nodes as they ran (`v1.program_node`), so that a run whose bound is
withheld, for instance because a rule fails, can be looked at too.
"""

from __future__ import annotations

from gapscope.model.reasons import CLOCK_QUANTUM_NS
from gapscope.model.rows import Rows
from gapscope.model.rules import fsdp2
from gapscope.model.rules.book import Node

# Ranks and steps that ran the same nodes in the same order ran one program.
_PROGRAMS = """
WITH program AS (
    SELECT
        rank, step_id,
        list(struct_pack(
            kind := node_kind, unit := unit, phase := phase, turn := turn,
            group_name := coalesce(group_name, '')
        ) ORDER BY node_id) AS nodes
    FROM v1.program_node
    GROUP BY rank, step_id
)
SELECT nodes, list(rank) AS ranks, list(step_id) AS steps
FROM program
GROUP BY nodes
"""

_INSTANCES = """
WITH edge AS (
    SELECT
        unnest(?::BIGINT[]) AS before_id, unnest(?::BIGINT[]) AS after_id,
        unnest(?::VARCHAR[]) AS rule
),
ran AS (
    SELECT unnest(?::BIGINT[]) AS rank, unnest(?::BIGINT[]) AS step_id
)
SELECT
    e.rule,
    count(*) AS instances,
    count(*) FILTER (WHERE b.end_ns > a.start_ns + ?) AS violations
FROM edge AS e
CROSS JOIN ran AS r
INNER JOIN v1.program_node AS b
    ON r.rank = b.rank AND r.step_id = b.step_id AND e.before_id = b.node_id
INNER JOIN v1.program_node AS a
    ON r.rank = a.rank AND r.step_id = a.step_id AND e.after_id = a.node_id
GROUP BY e.rule
"""

_BINDS = """
SELECT chain_rule AS rule, count(*) AS binds
FROM v1.bound_node
WHERE chain_rule IS NOT NULL
GROUP BY chain_rule
"""

# What the classes of gaps rest on: the rule or order by way of which the cause was found.
_HELD = """
SELECT rule, sum(end_ns - start_ns)::BIGINT AS held_ns
FROM v1.gap_piece
WHERE rule IS NOT NULL AND gap_class IN ('R1', 'R2', 'R3')
GROUP BY rule
"""

_QUEUES = """
SELECT sum(instance_count)::BIGINT AS instances, sum(counter_examples)::BIGINT AS violations
FROM v1.hardware_queue
HAVING count(*) > 0
"""


def rule_use(run: Rows) -> dict[str, dict[str, int]]:
    """Rule -> instances, violations, binds and held_ns; what nothing is known about is left out.

    `binds` counts places in the binding chain of the bound, `held_ns` sums recoverable idle over
    ranks and steps. Besides the pack's rules there are orders: `engine`, `link`, `join`, ...
    """
    used: dict[str, dict[str, int]] = {}

    def add(rule: str, **counts: int) -> None:
        of_rule = used.setdefault(rule, {})
        for name, count in counts.items():
            of_rule[name] = of_rule.get(name, 0) + count

    for nodes, ranks, steps in run.sql(_PROGRAMS).iter_rows():
        edges = fsdp2.edges(
            [Node(n["kind"], n["unit"], n["phase"], n["turn"], n["group_name"]) for n in nodes]
        )
        parameters = [
            # Places in the program are node ids: both count from 0 in host issue order.
            [edge.before for edge in edges],
            [edge.after for edge in edges],
            [edge.rule for edge in edges],
            ranks,
            steps,
            CLOCK_QUANTUM_NS,
        ]
        for rule, instances, violations in run.sql(_INSTANCES, parameters).iter_rows():
            add(rule, instances=instances, violations=violations)
    for instances, violations in run.sql(_QUEUES).iter_rows():
        add("Q1", instances=instances, violations=violations)
    for rule, binds in run.sql(_BINDS).iter_rows():
        add(rule, binds=binds)
    for rule, held_ns in run.sql(_HELD).iter_rows():
        add(rule, held_ns=held_ns)
    return used
