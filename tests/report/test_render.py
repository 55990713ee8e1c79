from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from gapscope._resources import read_text
from gapscope.render import html, markdown, text
from gapscope.render import json as json_renderer
from gapscope.report.build import build

from .tiny import two_ranks

if TYPE_CHECKING:
    from gapscope.report.document import Document

EVIL = "</script><img src=x onerror=alert(1)>"
EVIL_RANGE = 'step 0 "><svg onload=alert(2)> |`@someone #1'
EVIL_HOST = "<b>host</b>'\"&"


class _Page(HTMLParser):
    """Elements, attributes and the text of scripts, as a browser would find them."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.attributes.append((tag, name, value))
            if name == "id":
                self.ids.append(value or "")
            if tag == "a" and name == "href":
                self.targets.append(value or "")


@pytest.fixture(scope="module")
def document() -> Document:
    return build(two_ranks().run())


@pytest.fixture(scope="module")
def evil() -> Document:
    made = two_ranks(hostname=EVIL_HOST)
    made.con.execute("UPDATE v1.name SET name = ? WHERE name = 'my_gemm'", [f"{EVIL} gemm"])
    made.con.execute("UPDATE v1.name SET name = ? WHERE name = 'step 0'", [EVIL_RANGE])
    made.add(
        "source_quality", rank=0, check_name="odd", status="warn", detail=EVIL, forbids=EVIL_RANGE
    )
    return build(made.run())


def test_page_asks_for_nothing(document: Document) -> None:
    page = html.render(document)
    assert (
        "content=\"default-src 'none'; style-src 'unsafe-inline'; "
        "script-src 'unsafe-inline'; img-src data:\"" in page
    )
    parsed = _Page(page)
    assert not [a for a in parsed.attributes if a[1] in ("src", "srcset", "action", "data")]
    assert not [a for a in parsed.attributes if a[0] == "link"]
    assert not [a for a in parsed.attributes if a[1].startswith("on")]
    assert all(target.startswith("#") for target in parsed.targets)


def test_every_link_has_its_target_and_ids_are_unique(document: Document) -> None:
    parsed = _Page(html.render(document, charts=False))
    assert len(set(parsed.ids)) == len(parsed.ids)
    missing = {target[1:] for target in parsed.targets} - set(parsed.ids)
    assert not missing
    assert {"step-1", "rank-0", "claim-split", "finding-blocking", "waterfall"} <= set(parsed.ids)


def test_size_limits(document: Document) -> None:
    assert len(html.render(document).encode()) < html.SIZE_LIMIT
    assert len(html.render(document, charts=False).encode()) < 300_000


def test_charts_are_optional(document: Document) -> None:
    page = html.render(document, charts=False)
    assert 'id="plotly"' not in page
    assert 'id="charts"' not in page
    assert 'class="gantt"' in page


def test_missing_plotly_is_no_error(document: Document, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_plotly", lambda: None)
    assert html.render(document) == html.render(document, charts=False)


def test_page_too_large_goes_without_charts(
    document: Document, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "SIZE_LIMIT", 1_000_000)
    assert html.render(document) == html.render(document, charts=False)


def test_tables_are_accessible(document: Document) -> None:
    page = html.render(document, charts=False)
    parsed = _Page(page)
    assert parsed.tags.count("table") == parsed.tags.count("caption")
    assert all(("th", "scope", scope) in parsed.attributes for scope in ("col", "row"))
    heads = len(re.findall(r"<th\b", page))
    assert heads == len([a for a in parsed.attributes if a[:2] == ("th", "scope")])
    assert 'class="skip"' in page
    assert '<html lang="en">' in page


def test_each_table_and_figure_shows_its_query(document: Document) -> None:
    page = html.render(document, charts=False)
    count = sum(len(s.tables) + len(s.figures) for s in document.sections)
    assert page.count('<details class="sql">') == count + len(document.opportunities)


@pytest.mark.parametrize("charts", [True, False])
def test_names_stay_text(evil: Document, charts: bool) -> None:
    page = html.render(evil, charts=charts)
    parsed = _Page(page)
    assert "img" not in parsed.tags
    assert not [a for a in parsed.attributes if a[1].startswith("on")]
    assert "<b>host</b>" not in page
    assert page.count("</script>") == (3 if charts else 1)
    assert "onerror=alert(1)&gt;" in page


def test_chart_data_round_trips(evil: Document) -> None:
    page = html.render(evil)
    found = re.search(
        r'<script type="application/json" id="charts">(.*?)</script>', page, re.DOTALL
    )
    assert found is not None
    charts = json.loads(found.group(1))
    assert [chart["kind"] for chart in charts][:2] == ["waterfall", "gantt"]
    assert f"{EVIL} gemm" in charts[1]["names"]
    marks = charts[1]["marks"]
    assert marks
    assert all(len(mark) == 8 for mark in marks)


@pytest.mark.parametrize("name", ["html", "markdown", "json", "text"])
def test_same_run_same_bytes(name: str) -> None:
    renderers = {
        "html": html.render,
        "markdown": markdown.render,
        "json": json_renderer.render,
        "text": text.render,
    }
    first, second = (renderers[name](build(two_ranks().run())) for _ in range(2))
    assert first == second


def test_json_is_versioned_and_whole(document: Document) -> None:
    rendered = json_renderer.render(document)
    body = json.loads(rendered)
    assert next(iter(body)) == "schema"
    assert body["schema"] == "gapscope.report/1"
    assert body["verdict"]["step"] == {
        "value": 100_000,
        "unit": "ns",
        "n": 3,
        "low": 98_000,
        "high": 100_000,
    }
    assert body["sections"][0]["id"] == "verdict"
    assert body["claims"][0]["status"] == "measured"


def test_markdown_has_what_a_reviewer_needs(document: Document) -> None:
    rendered = markdown.render(document)
    for part in ("## 1. Verdict", "## 2. Capture quality", "## 3. Per-step budget", "```sql"):
        assert part in rendered
    assert "| launch-starved | 6.00 us | 6.0 % |" in rendered
    for line in rendered.splitlines():
        if line.startswith("|"):
            assert line.endswith("|")


def test_markdown_names_stay_text(evil: Document) -> None:
    rendered = markdown.render(evil)
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", rendered, flags=re.DOTALL)
    assert "<img" not in outside
    assert "<svg" not in outside
    assert "@someone" not in outside


def test_markdown_fits_a_comment() -> None:
    made = two_ranks()
    for index in range(400):
        made.add(
            "source_quality",
            rank=0,
            check_name=f"check_{index:03}",
            status="warn",
            detail="x" * 300,
            forbids="y" * 100,
        )
    rendered = markdown.render(build(made.run()))
    assert len(rendered) <= markdown.LIMIT
    assert "does not fit" in rendered


def test_text_fits_a_terminal(document: Document, evil: Document) -> None:
    for one in (document, evil):
        rendered = text.render(one)
        assert rendered.isascii()
        assert max(map(len, rendered.splitlines())) <= text.WIDTH
    order = [text.render(document).index(name) for name in ("1. VERDICT", "2. CAPTURE", "3. PER")]
    assert order == sorted(order)


def test_text_says_of_which_ranks_it_leaves_steps_out() -> None:
    made = two_ranks()
    for step in range(3, 12):
        made.step(0, step, label=f"step {step}")
        made.step(1, step, label=f"step {step}")
    said = " ".join(text.render(build(made.run())).split())
    assert "(4 more rows, of rank 1: they are in the HTML and the JSON report)" in said


def test_summary_is_three_lines(document: Document) -> None:
    assert text.summary(document).splitlines() == [
        "gapscope: step 100.0 us (n=3, 98.00-100.0), compute 64.00 us, rank 1 (2 captured)",
        (
            "gapscope: no compute: launch-starved 6.00 us, blocking <= 20.00 us, stalled 10.00 us, "
            "tail 0 us"
        ),
        (
            "gapscope: top: blocking: compute waits for communication (<= +25.0 %); "
            "quality: 0 fail, 0 warn"
        ),
    ]
    assert max(map(len, text.summary(document).splitlines())) <= 100


def _luminance(color: str) -> float:
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("ink", "paper"),
    [
        ("fg", "bg"),
        ("fg", "panel"),
        ("fg", "lane"),
        ("fg", "target"),
        ("soft", "bg"),
        ("soft", "panel"),
        ("link", "bg"),
        ("link", "target"),
        ("bad", "badbg"),
        ("warn", "warnbg"),
        ("good", "goodbg"),
    ],
)
def test_text_contrast_is_aa(theme: int, ink: str, paper: str) -> None:
    style = read_text("reports", "assets", "report.css")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", blocks[theme]))
    light, dark = sorted((_luminance(colors[ink]), _luminance(colors[paper])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_control_characters_reach_no_output() -> None:
    made = two_ranks()
    made.con.execute("UPDATE v1.name SET name = ? WHERE name = 'my_gemm'", ["\x1b[31m\u202egemm"])
    document = build(made.run())
    for rendered in (
        html.render(document),
        markdown.render(document),
        text.render(document),
        json_renderer.render(document),
    ):
        assert "\x1b" not in rendered
        assert "\u202e" not in rendered
        assert "\\u001b" not in rendered
    assert "\\x1b[31m" in html.render(document)


def test_unmatched_kernels_are_named_everywhere() -> None:
    made = two_ranks()
    made.con.execute("UPDATE v1.name SET name = 'odd_thing' WHERE name = 'other_gemm'")
    document = build(made.run())
    for rendered in (html.render(document), markdown.render(document), text.render(document)):
        assert "No classification rule knew 1 kernel name" in rendered.replace("\xa0", " ")
        assert "odd_thing" in rendered


def test_text_and_markdown_refer_only_to_what_they_hold(document: Document) -> None:
    rendered = markdown.render(document)
    assert [f"## {n}." in rendered for n in range(1, 7)] == [True] * 6
    assert rendered.count("```sql") == 1
    assert "in section 3" not in rendered
    assert "in section 3" not in text.render(document)


def test_claims_are_numbered_marks(document: Document) -> None:
    page = html.render(document, charts=False)
    assert "how known" not in page
    order = [claim.id for claim in document.claims]
    number = order.index("split") + 1
    assert (
        f'<a class="why" href="#claim-split" aria-label="claim {number}: how this is known"' in page
    )
    assert ">Compute-absent pieces, step 1 of rank 1</a>" in page


@pytest.mark.parametrize("name", ["```<img>`", "``<img>``", "a`<img>", "````<img>``", "`<img>"])
def test_markdown_of_a_name_with_backticks_has_no_markup(name: str) -> None:
    for said in (markdown.text(name), markdown.text(f"the kernel `{name}` is slow")):
        # What a reader of Markdown does: a run of backticks ends at the next run of that length.
        outside = re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", said)
        assert "<" not in outside, said
