"""MFU and HFU of the declared model, or what must be declared to state them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapscope.report.document import Column, Statement, Table
from gapscope.report.facts import table
from gapscope.units import interval, value

if TYPE_CHECKING:
    from gapscope.report.facts import Facts, Row

BASIS = "FROM v1.mfu_basis"

MODEL = """\
SELECT part, layer_count, parameters, forward_flops, causal_flops, recomputed_flops
FROM v1.model_flops"""

# More than the peak: what was declared is not what a step ran.
_PEAK = 1.0

_MEASURES = ("mfu", "causal_mfu", "hfu")


def _query(rank: int, step_id: int) -> str:
    """The shown step's utilisation, with the range over the steps that count."""
    lines = "\n".join(
        f"    max({name}) FILTER (WHERE step_id = {step_id}) AS {name},\n"
        f"    min({name}) AS {name}_min, max({name}) AS {name}_max,"
        for name in _MEASURES
    )
    return f"""\
SELECT
{lines}
    max(step_ns) FILTER (WHERE step_id = {step_id}) AS step_ns,
    any_value(model_flops) AS model_flops,
    count(*)::BIGINT AS step_count
FROM v1.step_mfu
WHERE rank = {rank} AND NOT is_boundary"""


def _known(facts: Facts) -> Row | None:
    if facts.focus is None or facts.projection != "device":
        return None
    row = facts.rows(_query(facts.at.rank, facts.at.step_id))[0]
    return row if row["mfu"] is not None else None


def is_shown(facts: Facts) -> bool:
    """Whether MFU is stated: all of it is declared, and it stays below the peak."""
    row = _known(facts)
    return row is not None and row["mfu_max"] <= _PEAK


def statements(facts: Facts) -> list[Statement]:
    """What is achieved, and the convention; or that it cannot be."""
    row = _known(facts)
    if row is None:
        return []
    if row["mfu_max"] > _PEAK:
        return [
            Statement(
                f"No MFU: what is declared would be {value(row['mfu_max'], 'share')} of the peak. "
                "The batch, the model or the peak is not what a step of this capture ran, or its "
                "steps are parts of a step.",
                "mfu",
            )
        ]
    basis = facts.rows(BASIS)[0]
    n = row["step_count"]
    said = f"MFU is {_text(row, 'mfu', n)} with attention over the whole sequence"
    if row["causal_mfu"] is not None:
        said += f", {_text(row, 'causal_mfu', n)} with the half that a causal mask leaves"
    if row["hfu"] is not None and row["hfu"] != row["mfu"]:
        said += f"; HFU, with what is recomputed, {_text(row, 'hfu', n)}"
    peak = f"{basis['peak_tflops']:,.1f} TFLOP/s"
    source = (
        "as declared"
        if basis["peak_source"] == "declared"
        else f"dense {basis['matrix_precision']} of {basis['peak_source']}"
    )
    return [
        Statement(
            f"{said}: {row['model_flops'] / 1e15:,.4g} PFLOP a step by the declared model and "
            f"batch, over {basis['device_count']:,} devices of {peak} ({source}).",
            "mfu",
        )
    ]


def _text(row: Row, name: str, n: int) -> str:
    return interval(row[name], "share", n, row[f"{name}_min"], row[f"{name}_max"])


def missing(facts: Facts) -> list[Statement]:
    """What must be declared first, and what of it the captures contradict."""
    if facts.focus is None or facts.projection != "device":
        return []
    basis = facts.rows(BASIS)[0]
    lacking, contradicted = basis["missing"], basis["contradicted"]
    said = [] if lacking is None else [f"gapscope.toml does not declare {lacking}."]
    if contradicted is not None:
        said.append(f"what it rests on is contradicted ({contradicted}).")
    return [Statement(f"No MFU: {why}", "mfu") for why in said]


def tables(facts: Facts) -> tuple[Table, ...]:
    """The work of one token by the parts of the declared model."""
    if _known(facts) is None:
        return ()
    rows = facts.rows(MODEL)
    return (
        table(
            "model-flops",
            "Work of one token in the declared model",
            "By shape, two operations a multiplication; backward is twice the forward. Embedding "
            "lookups, norms and activations are not counted. A sum of weights that is not that of "
            "the model means a wrong declaration.",
            "mfu",
            MODEL,
            [_part(row) for row in rows],
            (
                Column("part", "part"),
                Column("layer_count", "layers", "count"),
                Column("parameters", "weights", "count"),
                Column("forward", "forward", "text"),
                Column("causal", "causal", "text", "with half of attention"),
                Column("recomputed", "recomputed", "text"),
            ),
            is_open=False,
        ),
    )


def _part(row: Row) -> Row:
    return {
        "part": row["part"].replace("_", " "),
        "layer_count": row["layer_count"],
        "parameters": row["parameters"],
        "forward": _mflop(row["forward_flops"]),
        "causal": _mflop(row["causal_flops"]),
        "recomputed": _mflop(row["recomputed_flops"]),
    }


def _mflop(flops: float | None) -> str:
    return "" if flops is None else f"{flops / 1e6:,.1f} MFLOP"
