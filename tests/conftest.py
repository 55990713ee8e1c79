"""Shared fixtures: the shipped sample ingested once, and captures that stay outside the repo."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite expected files instead of comparing"
    )


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def sample() -> Path:
    """Directory of the shipped two-rank capture."""
    return ROOT / "gapscope" / "sample"


@pytest.fixture(scope="session")
def tiny_run(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample, ingested once. Tests read it; whoever writes copies it first."""
    from gapscope.ingest.pipeline import ingest

    out = tmp_path_factory.mktemp("tiny") / "gapscope.run"
    return ingest([sample], out, workers=1).out


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Captures for tests that are not part of the repository: `shared/` beside it."""
    shared = ROOT.parent / "shared"
    if not (shared / "data").is_dir():
        pytest.skip("the captures in ../shared are not here")
    return shared
