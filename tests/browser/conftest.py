"""A real Chromium, headless, offline; tests skip where there is none."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from gapscope.render import html
from gapscope.report.build import build

from ..report.tiny import two_ranks  # noqa: TID252 -- tests are no package on the path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")
EVIL = "</script><img src=x onerror=\"document.title='broken'\"> gemm"


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium: `apt-get install chromium`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with names that would break a careless page."""
    made = two_ranks()
    made.con.execute("UPDATE v1.name SET name = ? WHERE name = 'my_gemm'", [EVIL])
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(html.render(build(made.run())), encoding="utf-8")
    return file


class Opened:
    """A page, what its console said, and what it asked of the network."""

    def __init__(self, page: Any, messages: list[str], requests: list[str]) -> None:
        self.page = page
        self.messages = messages
        self.requests = requests

    def wait_for_charts(self) -> None:
        self.page.wait_for_function("document.documentElement.dataset.charts === 'ready'")


@pytest.fixture
def visit(chromium: Any, page_file: Path) -> Iterator[Callable[..., Opened]]:
    contexts = []

    def visit(fragment: str = "", **options: Any) -> Opened:
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        messages: list[str] = []
        requests: list[str] = []
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(page_file.as_uri() + fragment)
        return Opened(page, messages, requests)

    yield visit
    for context in contexts:
        context.close()
