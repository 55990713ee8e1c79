"""The tracer's wheel for older systems, built as tracer/README.md says.

Minutes of compiling, so it runs where GAPSCOPE_TEST_MANYLINUX asks for it: before a release, and when
the build changes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tracer.conftest import TRACER, read_stream

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.skipif(
        not os.environ.get("GAPSCOPE_TEST_MANYLINUX"),
        reason="minutes of compiling with zig; GAPSCOPE_TEST_MANYLINUX=1 asks for it",
    ),
]

NEWEST_GLIBC = (2, 28)


def readme_commands() -> list[str]:
    """The indented block of the README that ends in `auditwheel repair`."""
    block = re.search(
        r"(?:^    .*\n)+?^    auditwheel repair .*\n",
        (TRACER / "README.md").read_text(),
        re.MULTILINE,
    )
    assert block is not None
    return [line.strip() for line in block[0].splitlines()]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """libgapscope_trace.so of the wheel."""
    missing = [tool for tool in ("cmake", "ninja", "git") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"the wheel cannot be built without {' and '.join(missing)}")
    place = tmp_path_factory.mktemp("manylinux")
    # The commands write into the directory where they run.
    (place / "tracer").symlink_to(TRACER)
    subprocess.run([sys.executable, "-m", "venv", str(place / "env")], check=True)
    install, *build = readme_commands()
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {**kept, "PATH": f"{place / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    for command in (install, *build):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0 and command is install:
            pytest.skip("no package index to take zig from")
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (wheel,) = (place / "dist").iterdir()
    # Besides those of older systems that would do.
    assert "manylinux_2_28_x86_64" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract("gapscope_tracer/libgapscope_trace.so", place))


def test_older_systems_have_what_it_asks_for(library: Path):
    listed = subprocess.run(
        ["objdump", "-T", str(library)], capture_output=True, text=True, check=True
    ).stdout
    versions = {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", listed)}
    assert versions
    assert max(versions) <= NEWEST_GLIBC
    # Its C++ library is inside, and nothing of it leaves.
    assert "GLIBCXX" not in listed
    exported = re.findall(r"^\S+ g .*? (\w+)$", listed, re.MULTILINE)
    assert sorted(exported) == ["InitializeInjection", "InitializeInjectionNvtx2"]


def test_it_traces(library: Path, tracer_build: Path, tmp_path: Path):
    (cupti,) = (tracer_build / "tests" / "cupti-12.6").glob("libcupti.so.??")
    trace = tmp_path / "trace"
    more = {"NVTX_INJECTION64_PATH": str(library), "GAPSCOPE_TRACE_DIR": str(trace)}
    done = subprocess.run(
        [str(tracer_build / "tests" / "traced_app"), str(cupti), str(library), "threads"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **more},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (process,) = trace.iterdir()
    assert read_stream(process / "kernel.arrows").num_rows == 8000
    assert read_stream(process / "range.arrows").num_rows == 8800
