"""`[device]` of gapscope.toml: rates of links, which the table of models gives way to."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapscope import config
from gapscope.errors import GapscopeError
from gapscope.ingest.pipeline import ingest
from gapscope.run import open_run
from tests.scenarios.exports import MS, Capture


def _file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "gapscope.toml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "line", ["host_link_gb_s = 0", 'host_link_gb_s = "fast"', "pcie = 5", "memory_gb_s = nan"]
)
def test_what_is_no_rate_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(GapscopeError) as failure:
        config.read(_file(tmp_path, f"[device]\n{line}\n"))
    assert failure.value.slug == "bad-config"


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (55, "at 50.00 GB/s of 55.00 GB/s (90.9 %; declared)"),
        (48, "at 50.00 GB/s, above the stated peak of 48.00 GB/s (declared), so that this"),
        (8, "at 50.00 GB/s, above the stated peak of 8.00 GB/s (declared), so that this"),
    ],
)
def test_more_than_the_declared_peak_is_no_share_of_it(
    tmp_path: Path, rate: float, said: str
) -> None:
    capture = Capture(rank=0, world=1)
    capture.copy(7, 100 * MS, 102 * MS, issued=99 * MS, size=100_000_000)
    declared = config.read(_file(tmp_path, f"[device]\nhost_link_gb_s = {rate}\n"))
    source = capture.write(tmp_path / "rank0.sqlite")
    out = ingest([source], tmp_path / "run", declared=declared, workers=1).out
    with open_run(out) as run:
        text = " ".join(s.text for section in run.report().sections for s in section.statements)
        contradictions = run.sql(
            "SELECT detail FROM v1.capture_quality WHERE check_name = 'contract_contradiction'"
        ).rows()
    assert said in text
    assert contradictions == (
        []
        if rate > 47.7
        else [("devices: host_link_gb_s of [device] is 8, copies HtoD reach 50.0 GB/s",)]
    )


def test_of_a_copy_inside_the_device_the_peak_is_half_of_the_memory(tmp_path: Path) -> None:
    capture = Capture(rank=0, world=1)
    capture.copy(
        7, 110 * MS, 111 * MS, issued=105 * MS, size=2_520_000_000, kind=8, src=2, dst=2
    )  # fmt: skip
    out = ingest([capture.write(tmp_path / "rank0.sqlite")], tmp_path / "run", workers=1).out
    with open_run(out) as run:
        text = " ".join(s.text for section in run.report().sections for s in section.statements)
    assert (
        "at 2,520 GB/s, above the stated peak of 2,400 GB/s (NVIDIA H200 data sheet; half of the "
        "memory's rate, for a copy reads and writes), so that this peak is not what limits them"
    ) in text


def test_declared_rates_come_first(tmp_path: Path) -> None:
    """A copy to the device at 50 GB/s, one inside of it at 100: only the first has a declared peak."""
    capture = Capture(rank=0, world=1)
    capture.copy(7, 100 * MS, 102 * MS, issued=99 * MS, size=100_000_000)
    capture.copy(
        7, 110 * MS, 111 * MS, issued=105 * MS, size=100_000_000, kind=8, src=2, dst=2
    )  # fmt: skip
    declared = config.read(_file(tmp_path, "[device]\nhost_link_gb_s = 55\n"))
    source = capture.write(tmp_path / "rank0.sqlite")
    out = ingest([source], tmp_path / "run", declared=declared, workers=1).out
    with open_run(out) as run:
        rows = run.sql(
            "SELECT copy_kind, gb_s, peak_gb_s, peak_source FROM v1.copy_time "
            "WHERE level = 'direction' ORDER BY copy_kind DESC"
        ).rows()
    assert rows == [
        ("HtoD", 50, 55, "declared"),
        ("DtoD", 100, 2400, "NVIDIA H200 data sheet"),
    ]
