"""Queries over `pair.*`, each as a reader may paste it into a shell on the kept comparison."""

from __future__ import annotations

CHECKS = """\
FROM pair.comparability
ORDER BY
    list_position(['forbids', 'limits', 'differs', 'unknown', 'same'], verdict),
    list_position(
        ['workload', 'topology', 'steps', 'capture', 'environment', 'declared', 'quality'], area
    ),
    item"""

STEPS = """\
SELECT
    d.*,
    a.windows AS a_windows,
    b.windows AS b_windows
FROM pair.step_delta AS d
INNER JOIN (
    SELECT subject, list(step_ns / units ORDER BY step_number) AS windows
    FROM pair.part
    WHERE side = 'A' AND ledger = 'split' AND part = 'compute'
    GROUP BY subject
) AS a ON d.subject IS NOT DISTINCT FROM a.subject
INNER JOIN (
    SELECT subject, list(step_ns / units ORDER BY step_number) AS windows
    FROM pair.part
    WHERE side = 'B' AND ledger = 'split' AND part = 'compute'
    GROUP BY subject
) AS b ON d.subject IS NOT DISTINCT FROM b.subject
ORDER BY d.subject NULLS FIRST"""

PARTS = """\
SELECT
    d.*,
    a.windows AS a_windows,
    b.windows AS b_windows
FROM pair.part_delta AS d
INNER JOIN pair.shown AS s ON d.subject IS NULL OR d.subject = s.rank
LEFT JOIN (
    SELECT subject, ledger, part, list(part_ns / units ORDER BY step_number) AS windows
    FROM pair.part
    WHERE side = 'A'
    GROUP BY subject, ledger, part
) AS a ON d.subject IS NOT DISTINCT FROM a.subject AND d.ledger = a.ledger AND d.part = a.part
LEFT JOIN (
    SELECT subject, ledger, part, list(part_ns / units ORDER BY step_number) AS windows
    FROM pair.part
    WHERE side = 'B'
    GROUP BY subject, ledger, part
) AS b ON d.subject IS NOT DISTINCT FROM b.subject AND d.ledger = b.ledger AND d.part = b.part
ORDER BY d.subject NULLS FIRST, d.ledger, d.position"""

RESIDUALS = "FROM pair.ledger_residual ORDER BY subject NULLS FIRST, ledger"

PROVISIONAL = """\
SELECT bool_or(is_provisional) AS is_provisional
FROM pair.counted"""

CHARGES = """\
WITH counted AS (
    SELECT c.side, c.step_id, c.units
    FROM pair.counted AS c
    INNER JOIN pair.shown AS s ON c.rank = s.rank
),

window_charge AS (
    SELECT
        w.side, d.level, d.label, d.op_class,
        list((coalesce(c.compute_ns, 0) + coalesce(c.wait_ns, 0)) / w.units ORDER BY w.step_id)
            AS windows
    FROM pair.charge_delta AS d
    CROSS JOIN counted AS w
    LEFT JOIN pair.charge AS c
        ON
            c.side = w.side AND c.step_id = w.step_id AND c.level = d.level
            AND c.label IS NOT DISTINCT FROM d.label
            AND c.op_class IS NOT DISTINCT FROM d.op_class
    GROUP BY w.side, d.level, d.label, d.op_class
)

SELECT
    d.*,
    a.windows AS a_windows,
    b.windows AS b_windows
FROM pair.charge_delta AS d
INNER JOIN window_charge AS a
    ON
        a.side = 'A' AND d.level = a.level AND d.label IS NOT DISTINCT FROM a.label
        AND d.op_class IS NOT DISTINCT FROM a.op_class
INNER JOIN window_charge AS b
    ON
        b.side = 'B' AND d.level = b.level AND d.label IS NOT DISTINCT FROM b.label
        AND d.op_class IS NOT DISTINCT FROM b.op_class
ORDER BY d.level, abs(d.delta) DESC, d.label"""

CHARGE_RESIDUALS = "FROM pair.charge_residual ORDER BY level"

VOLUMES = "FROM pair.kernel_delta ORDER BY abs(volume_delta) DESC, name"

QUEUES = "FROM pair.queue ORDER BY side, streams"

NAMING = "SELECT coalesce(bool_and(is_by_name), TRUE) AS is_by_name FROM pair.overlap"

SHOWN = """\
SELECT s.projection, s.rank, a.name AS anchor, a.a_count, a.b_count
FROM pair.shown AS s
LEFT JOIN pair.anchor AS a ON s.rank = a.rank"""


def parts(subject: int | None, ledger: str) -> str:
    """The rows of one ledger."""
    of = "subject IS NULL" if subject is None else f"subject = {subject}"
    return f"FROM pair.part_delta\nWHERE {of} AND ledger = '{ledger}'\nORDER BY position"


def charges(level: str) -> str:
    """The rows of one level of charges."""
    return f"FROM pair.charge_delta\nWHERE level = '{level}'\nORDER BY abs(delta) DESC, label"
