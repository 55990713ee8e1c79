"""What is known of the run beside its rows, what the profiler did to it, and whom it covers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report import queries
from gapscope.report.document import Column, Statement, Table
from gapscope.report.facts import table
from gapscope.units import fixed, listed, plural, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

PERTURBED = "perturbed"

UNKNOWN = """\
SELECT string_agg(item, ', ' ORDER BY ordinal) AS items, limits
FROM v1.analysis_contract
WHERE value IS NULL
GROUP BY limits
ORDER BY min(ordinal)"""

KNOWN = """\
SELECT item, value, source, contradiction
FROM v1.analysis_contract
WHERE value IS NOT NULL
ORDER BY ordinal"""

ACTIVITY = """\
SELECT name, is_tool, rank_count, record_count, volume_ns, in_steps_ns, in_boundary_ns
FROM (
    SELECT
        name, is_tool, count(*) AS rank_count, sum(record_count)::BIGINT AS record_count,
        sum(volume_ns)::BIGINT AS volume_ns, sum(in_steps_ns)::BIGINT AS in_steps_ns,
        sum(in_boundary_ns)::BIGINT AS in_boundary_ns
    FROM v1.profiler_activity
    GROUP BY name, is_tool
)
ORDER BY is_tool DESC, volume_ns DESC, name
LIMIT 40"""

# One row a part: who of it was captured.
COVERED = """\
SELECT part, list(rank ORDER BY rank) AS ranks
FROM v1.rank_part
GROUP BY part
ORDER BY min(rank)"""

WORLD = """\
SELECT value::BIGINT AS world_size FROM v1.analysis_contract WHERE item = 'world_size'"""


def covered(facts: Facts) -> list[Statement]:
    """That a verdict is about the captured ranks, where these are not all."""
    world = next((row["world_size"] for row in facts.rows(WORLD)), None)
    captured = len(facts.ranks)
    if world is None or world <= captured:
        return []
    parts = facts.rows(COVERED)
    ranks = listed([row["rank"] for row in facts.ranks])
    if captured == 1:
        only, covers = f"rank {ranks} was captured", "it alone"
    else:
        only, covers = f"{captured:,} were captured ({ranks})", "these alone"
    of_parts = ""
    if len(parts) > 1:
        of_parts = (
            "; they are of "
            f"{plural(len(parts), 'part')}, and no rank is compared with one of another part"
        )
    others = f"What the other {world - captured:,} do is unknown; one of them may be slower."
    if world - captured == 1:
        others = "What the other one does is unknown; it may be slower."
    return [
        Statement(
            f"Of {world:,} ranks only {only}: the verdict covers {covers}{of_parts}. {others}",
            "capture",
        )
    ]


def perturbation(facts: Facts) -> list[Statement]:
    """How much slower the profiled run was, where that is material."""
    rows = [row for row in facts.perturbation if row["verdict"] == PERTURBED]
    if not rows:
        return []
    row = rows[0]
    more = f" ({plural(len(rows), 'rank')} so, this one most)" if len(rows) > 1 else ""
    return [
        Statement(
            f"Perturbed: profiled steps of rank {row['rank']} take {_sample(row, 'profiled')}, "
            f"unprofiled ones {_sample(row, 'reference')}: {value(row['slowdown'], 'share')} "
            f"slower{more}. Every time and ceiling here is one of the slower run; none is "
            "corrected.",
            "perturbation",
        )
    ]


def _not_material(facts: Facts) -> list[Statement]:
    """That the profiled run was not materially slower, where unprofiled steps are declared."""
    rows = facts.perturbation
    if not rows or any(row["verdict"] != "not material" for row in rows):
        return []
    row = rows[0]
    more = f" (the most of {plural(len(rows), 'rank')})" if len(rows) > 1 else ""
    return [
        Statement(
            f"Not materially perturbed: profiled steps of rank {row['rank']} take "
            f"{_sample(row, 'profiled')}, unprofiled ones {_sample(row, 'reference')}: "
            f"{fixed(100 * row['slowdown'], '+')} %{more}.",
            "perturbation",
        )
    ]


def _sample(row: Row, name: str) -> str:
    low, high = value(row[f"{name}_min_ns"], "ns"), value(row[f"{name}_max_ns"], "ns")
    middle = value(row[f"{name}_median_ns"], "ns")
    return f"{middle} (n={row[f'{name}_count']}, {low} to {high})"


def statements(facts: Facts) -> list[Statement]:
    """What is not known of the run, in one sentence; the table says what each limits."""
    unknown = facts.rows(UNKNOWN)
    said = [*perturbation(facts), *_not_material(facts)]
    if unknown:
        said.append(
            Statement(
                "Neither the captures nor `[run]` of gapscope.toml say: "
                f"{', '.join(row['items'] for row in unknown)}.",
                "contract",
            )
        )
    return said


def tables(facts: Facts) -> list[Table]:
    """The contract, the perturbation, and what the profiler recorded of itself."""
    unknown, activity = facts.rows(UNKNOWN), facts.rows(ACTIVITY)
    found = []
    if unknown:
        found.append(
            table(
                "contract-missing",
                "What is not known of this run",
                "And what cannot be said without it.",
                "contract",
                UNKNOWN,
                unknown,
                (Column("items", "unknown", "code"), Column("limits", "limits")),
            )
        )
    found.append(
        table(
            "contract",
            "Analysis contract",
            "What is known of this run, from the trace or declared in `[run]` of gapscope.toml; "
            "nothing is taken from the name of a file.",
            "contract",
            KNOWN,
            facts.rows(KNOWN),
            (
                Column("item", "item", "code"),
                Column("value", "value"),
                Column("source", "from"),
                Column("contradiction", "contradiction"),
            ),
            is_open=False,
        )
    )
    if facts.perturbation:
        found.append(_perturbation(facts.perturbation))
    if activity:
        found.append(
            table(
                "profiler-activity",
                "What the profiler recorded of itself",
                "Work volume over all threads and ranks. It says nothing of how much slower the "
                "run was: only unprofiled steps of the same run do.",
                "capture",
                ACTIVITY,
                activity,
                (
                    Column("name", "what", "code"),
                    Column("is_tool", "the profiler's", "flag"),
                    Column("rank_count", "ranks", "count"),
                    Column("record_count", "records", "count"),
                    Column("volume_ns", "volume", "ns"),
                    Column("in_steps_ns", "in steps that count", "ns"),
                    Column("in_boundary_ns", "in boundary steps", "ns"),
                ),
                is_open=False,
            )
        )
    return found


def _perturbation(rows: list[Row]) -> Table:
    return table(
        "perturbation",
        "Profiled against unprofiled steps",
        "Material where medians are more than 2 % apart and more than either sample spreads (its "
        "middle 90 %). Nothing is corrected by it.",
        "perturbation",
        queries.PERTURBATION,
        rows,
        (
            Column("rank", "rank", "id"),
            Column("verdict", "verdict"),
            Column("profiled_count", "profiled", "count"),
            Column("profiled_median_ns", "median", "ns"),
            Column("profiled_min_ns", "shortest", "ns"),
            Column("profiled_max_ns", "longest", "ns"),
            Column("reference_count", "unprofiled", "count"),
            Column("reference_median_ns", "median", "ns"),
            Column("reference_min_ns", "shortest", "ns"),
            Column("reference_max_ns", "longest", "ns"),
            Column("slowdown", "slower by", "share"),
            Column("spread_ns", "spread", "ns"),
        ),
    )
