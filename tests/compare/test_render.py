"""One comparison in every form: the same numbers, and names that stay text."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

import pytest

from gapscope.cli.compare import Format, render
from gapscope.render import comparison_tables
from gapscope.render.comparison_text import shortened

from .pairs import US, compare, made, model, run_of

HOSTILE = "<script>alert(1)</script>::gemm<float, 3>|`x` @all #1 \x1b[31m"


@pytest.fixture(scope="module")
def seven():
    return compare(run_of(), run_of(longer_by=7))


@pytest.fixture(scope="module")
def refused():
    return compare(run_of(), run_of(ranks=3))


def test_text_is_80_columns_of_ascii(seven, refused):
    for document in (seven, refused, compare(model(), model())):
        text = render(document, Format.TABLE)
        assert text.isascii()
        assert max(map(len, text.splitlines())) <= 80
        assert "\n\n\n" not in text
    lines = render(seven, Format.TABLE).splitlines()
    assert lines[:2] == ["A  a.run", "B  b.run"]
    assert lines[3].startswith("A step of B is 7.00 us (7.0 %) longer: ")
    row = next(line for line in lines if line.startswith("  compute "))
    assert row.split() == ["compute", "66.00", "73.00", "+7.00", "+7.00", "+7.00", "+7.00"]
    assert sum(line.split() == ["residual", "0", "0"] for line in lines) == 2


def test_where_all_checks_are_alike_no_others_are_announced(seven):
    alike = replace(seven, checks=tuple(replace(one, verdict="same") for one in seven.checks))
    assert f"Compared: all {len(alike.checks)} checks are alike.\n" in render(alike, Format.TABLE)
    assert "checks are alike; the others:" in render(seven, Format.TABLE)


def test_names_of_one_table_stay_apart():
    kernels = [
        f"void at::native::<unnamed>::{name}<at::native::BFloat16, (int){size}>(T1, T2)"
        for name in ("multi_tensor_apply_kernel", "cunn_SoftMaxForward", "vectorized_layer_norm")
        for size in (2, 4)
    ]
    names = [*kernels, "a" * 60, "a" * 61, "nvjet_sm90_tst_128x192_64x4_TNN", "gemm", ""]
    short = shortened(names, 26)
    assert len(set(short.values())) == len(names)
    assert max(map(len, short.values())) <= 26
    assert short["gemm"] == "gemm"
    assert short[names[-3]] == "nvjet_sm90_tst_128x192_..."
    assert short[kernels[0]].startswith("multi_te...2>")
    # Alone, its beginning says what it is.
    assert shortened(kernels[:1], 26)[kernels[0]] == "void at::native::<unnam..."


def test_what_rounds_to_nothing_has_no_sign():
    document = compare(run_of(), run_of(longer_by=7))
    tiny = replace(document.steps[0], median_delta_ns=-40.0, a_median_ns=1e8, b_median_ns=1e8)
    text = render(replace(document, steps=(tiny, *document.steps[1:])), Format.TABLE)
    row = next(line for line in text.splitlines() if line.startswith("  the run "))
    assert row.split()[2:5] == ["100.00", "100.00", "0.00"]


def test_json_is_the_document(seven, refused):
    content = json.loads(render(seven, Format.JSON))
    assert next(iter(content)) == "schema"
    assert content["schema"] == "gapscope.compare/1"
    (run,) = [line for line in content["steps"] if line["rank"] is None]
    assert run["median_delta_ns"] == 7 * US
    assert run["median_interval"]["kind"] == "bootstrap"
    assert content["ledgers"][0]["lines"][0]["delta_ns"] == 7 * US
    content = json.loads(render(refused, Format.JSON))
    assert content["is_comparable"] is False
    assert content["ledgers"] == []


def test_csv_has_a_line_a_part(seven, refused):
    rows = list(csv.DictReader(io.StringIO(render(seven, Format.CSV))))
    steps = [row for row in rows if row["ledger"] == "step"]
    assert [row["rank"] for row in steps] == ["", "0", "1"]
    split = [row for row in rows if (row["ledger"], row["rank"]) == ("split", "0")]
    assert [row["part"] for row in split][-2:] == ["sum", "residual"]
    assert float(split[-1]["delta_ns"]) == 0
    amounts = [float(row["delta_ns"]) for row in split[:-2]]
    assert sum(amounts) == pytest.approx(float(split[-2]["delta_ns"]))
    assert len(render(refused, Format.CSV).splitlines()) == 1


def test_markdown_fits_a_comment(seven, refused):
    text = render(seven, Format.MARKDOWN)
    assert text.startswith("# GapScope: b.run against a.run\n\n**A step of B is 7.00 us")
    assert "| compute | 66.00 us | 73.00 us | +7.00 us |" in text
    assert "checks more are alike." in text
    assert len(text) < 60_000
    assert "**Not comparable. " in render(refused, Format.MARKDOWN)


def test_page_is_complete_without_network_and_scripts(seven, refused):
    for document in (seven, refused):
        page = render(document, Format.HTML)
        assert "default-src 'none'" in page
        assert not re.search(r'(src|href)="(?!#)', page)
        ids = re.findall(r' id="([^"]+)"', page)
        assert len(ids) == len(set(ids))
        for target in re.findall(r'href="#([^"]+)"', page):
            assert target in ids
    page = render(seven, Format.HTML)
    assert "+7.00\u00a0us" in page or "+7.00 us" in page
    for item in seven.ledgers:
        assert f'id="{item.id}"' in page
    assert page == render(seven, Format.HTML)


def test_names_stay_text_in_every_form():
    run = made()
    run.con.execute("UPDATE v1.name SET name = ? WHERE name = 'other_gemm'", [HOSTILE])
    document = compare(run_of(), run.run())
    page = render(document, Format.HTML)
    assert "<script>alert" not in page
    assert "&lt;script&gt;" in page
    markdown = render(document, Format.MARKDOWN)
    assert "@all" in markdown
    assert "@all" not in re.sub(r"`[^`\n]*`", "", markdown)
    assert "\x1b" not in render(document, Format.TABLE)


def test_the_bridge_leads_from_a_to_b(seven):
    figure = comparison_tables.bridge(seven)
    first, *between, last = figure.bars
    assert (first.value_ns, last.value_ns) == (99_600, 106_600)
    assert [bar.label for bar in between] == ["+ compute"]
    assert between[0].base_ns == first.value_ns
    assert between[0].base_ns + between[0].value_ns == last.value_ns


def test_every_sentence_has_a_claim_with_a_status(seven):
    known = {claim.id for claim in seven.claims}
    leaned = {statement.claim for statement in (seven.headline, *seven.statements)}
    leaned |= {table.claim for part in comparison_tables.sections(seven) for table in part.tables}
    leaned |= {one.claim for part in comparison_tables.sections(seven) for one in part.statements}
    assert leaned <= known
