"""The page in a real browser: silent, offline, complete without scripts, usable on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapscope.render import html
from gapscope.report.build import build

from ..report.tiny import modelled, two_ranks  # noqa: TID252 -- tests are no package on the path

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Opened

    Visit = Callable[..., Opened]

pytestmark = [
    pytest.mark.browser,
    # Playwright's own: pipes that it leaves open, an event loop that asyncio has given up.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]

PHONE = {"width": 390, "height": 844}
IN_VIEW = """id => {
    const box = document.getElementById(id).getBoundingClientRect();
    return box.top >= -1 && box.top < innerHeight && box.height > 0;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_opens_without_console_error_or_request(visit: Visit, page_file: Path, scheme: str) -> None:
    opened = visit(color_scheme=scheme)
    opened.wait_for_charts()
    assert opened.messages == []
    assert opened.requests == [page_file.as_uri()]


def test_charts_replace_the_static_figures(visit: Visit) -> None:
    opened = visit()
    opened.wait_for_charts()
    page = opened.page
    assert page.locator("#gantt-rank-1 .chart .main-svg").count() > 0
    assert not page.locator("#gantt-rank-1 .static").is_visible()
    assert page.locator("#waterfall .chart").is_visible()


def test_hover_names_the_op_and_its_times(visit: Visit) -> None:
    opened = visit(viewport={"width": 1280, "height": 900})
    opened.wait_for_charts()
    page = opened.page
    page.locator("#gantt-rank-1 .chart").scroll_into_view_if_needed()
    box = page.locator("#gantt-rank-1 .chart .nsewdrag").first.bounding_box()
    # The first gemm runs from 14 to 52 us of 100 in the second of four rows.
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.4 * box["height"])
    label = page.locator("#gantt-rank-1 .hoverlayer .hovertext")
    label.wait_for()
    shown = label.text_content()
    assert "compute" in shown
    assert "</script><img" in shown
    assert "38 us" in shown
    assert opened.messages == []


def test_tables_are_there_without_scripts(visit: Visit) -> None:
    page = visit(java_script_enabled=False).page
    assert page.locator("#quality-checks tbody tr").count() > 3
    assert page.locator("#steps tbody tr").count() == 6
    assert page.locator("#waterfall table tbody tr").count() == 6
    assert page.locator("#gantt-rank-1 svg path").first.is_visible()
    assert page.locator("#waterfall svg").first.is_visible()


def test_static_bars_are_as_long_as_their_times(visit: Visit) -> None:
    page = visit(java_script_enabled=False).page
    widths = [bar.bounding_box()["width"] for bar in page.locator("#waterfall .bar rect").all()]
    boxes = [box.bounding_box()["width"] for box in page.locator("#waterfall .bar svg").all()]
    shares = [width / box for width, box in zip(widths, boxes, strict=True)]
    assert shares == pytest.approx([1, 0.06, 0.2, 0.1, 0, 0.64], abs=0.01)


@pytest.mark.parametrize("fragment", ["step-1", "rank-0", "claim-split", "finding-stalled"])
def test_deep_link_shows_its_target(visit: Visit, fragment: str) -> None:
    opened = visit(f"#{fragment}")
    opened.wait_for_charts()
    opened.page.wait_for_timeout(100)
    assert opened.page.evaluate(IN_VIEW, fragment)


def test_deep_link_opens_folds(visit: Visit) -> None:
    opened = visit("#rules")
    opened.wait_for_charts()
    assert opened.page.locator("#rules table").is_visible()


@pytest.mark.parametrize("scripts", [True, False])
def test_phone_scrolls_only_inside_boxes(visit: Visit, scripts: bool) -> None:
    opened = visit(viewport=PHONE, java_script_enabled=scripts)
    if scripts:
        opened.wait_for_charts()
    # evaluate works in an isolated world, also where the page's own scripts are off.
    width = opened.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]


def test_tables_sort_by_value(visit: Visit) -> None:
    opened = visit()
    opened.wait_for_charts()
    page = opened.page
    page.locator("#steps thead button", has_text="launch-starved").click()
    head = page.locator("#steps thead th", has_text="launch-starved")
    assert head.get_attribute("aria-sort") == "descending"
    cells = page.locator("#steps tbody tr td:nth-child(5)")
    shown = [float(cell.get_attribute("data-v")) for cell in cells.all()]
    assert shown == sorted(shown, reverse=True)


def test_print_shows_tables_instead_of_charts(visit: Visit) -> None:
    opened = visit()
    opened.wait_for_charts()
    page = opened.page
    page.emulate_media(media="print")
    assert page.locator("#waterfall table").is_visible()
    assert not page.locator("#waterfall .chart").is_visible()
    assert not page.locator("nav").is_visible()


@pytest.mark.parametrize("width", [1280, 390])
def test_rows_of_boundary_steps_are_as_tall_as_others(
    chromium: Any, tmp_path: Path, width: int
) -> None:
    made = two_ranks()
    made.add("run_option", name="run", value='{"steady_steps": "1:3"}')
    file = tmp_path / "steps.html"
    file.write_text(html.render(build(made.run()), charts=False), encoding="utf-8")
    context = chromium.new_context(viewport={"width": width, "height": 900})
    try:
        page = context.new_page()
        page.goto(file.as_uri())
        reason = page.locator("#steps").get_by_text("outside the declared steady steps")
        assert reason.count() == 2
        rows = "rows => rows.map(row => row.getBoundingClientRect().height)"
        heights = page.eval_on_selector_all("#steps tbody tr", rows)
        assert max(heights) < 1.5 * min(heights)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        context.close()


def test_names_do_not_become_elements(visit: Visit) -> None:
    opened = visit()
    opened.wait_for_charts()
    assert opened.page.locator("img").count() == 0
    assert opened.page.title() == "GapScope: tiny.run"


def test_page_with_a_bound_draws_the_chain_and_the_way_to_it(chromium: Any, tmp_path: Path) -> None:
    file = tmp_path / "bound.html"
    file.write_text(html.render(build(modelled().run())), encoding="utf-8")
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        messages: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(file.as_uri())
        page.wait_for_function("document.documentElement.dataset.charts === 'ready'")
        assert messages == []
        assert page.locator("#waterfall .chart").is_visible()
        assert page.locator("#waterfall table tbody tr").count() == 12
        drawn = page.locator("#binding-chain .chart .bartext").all_text_contents()
        assert {"AG root", "FWD root", "BWD root"} <= set(drawn)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    finally:
        context.close()


def test_heat_map_shows_the_measure_that_is_picked(visit: Visit) -> None:
    opened = visit("#rank-step", viewport={"width": 1280, "height": 900})
    opened.wait_for_charts()
    page = opened.page
    assert page.locator("#rank-step .chart .main-svg").count() > 0
    labels = page.locator(".choice > label")
    assert labels.count() >= 3
    labels.filter(has_text="device idle").click()
    assert not page.locator("#rank-step").is_visible()
    page.locator("#rank-step-idle .chart .main-svg").first.wait_for()
    width = page.locator("#rank-step-idle .chart").bounding_box()["width"]
    assert width > 600
    assert opened.messages == []


def test_heat_map_can_be_picked_without_scripts(visit: Visit) -> None:
    page = visit(java_script_enabled=False).page
    assert page.locator("#rank-step svg").is_visible()
    page.locator(".choice > label", has_text="device idle").click()
    assert page.locator("#rank-step-idle svg").is_visible()
    assert not page.locator("#rank-step svg").is_visible()
    linked = visit("#rank-step-idle", java_script_enabled=False).page
    assert linked.locator("#rank-step-idle svg").is_visible()
