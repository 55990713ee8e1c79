"""Libraries that call NVTX 2: through libnvToolsExt, which CUDA shipped until 12.8."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.tracer.conftest import read_stream

WHEEL = ("nvidia-nvtx-cu11", "11.8.86", "manylinux1_x86_64")
SHA256 = "890656d8bd9b4e280231c832e1f0d03459200ba4824ddda3dcb59b1e1989b9f5"

# The application: a libcupti, the tracer as libcuda loads it, and NVTX 2.
SCRIPT = """
import ctypes, sys
cupti, tracer, nvtx = sys.argv[1:]
ctypes.CDLL(cupti, ctypes.RTLD_GLOBAL)
ctypes.CDLL(tracer).InitializeInjection()
nvtx = ctypes.CDLL(nvtx)
nvtx.nvtxRangeStartA.restype = ctypes.c_uint64
nvtx.nvtxRangeEnd.argtypes = [ctypes.c_uint64]
print(nvtx.nvtxRangePushA(b"step 3"), nvtx.nvtxRangePushW("l\u00e9ger"))
nvtx.nvtxMarkA(b"here")
print(nvtx.nvtxRangePop(), nvtx.nvtxRangePop())
nvtx.nvtxRangeEnd(nvtx.nvtxRangeStartA(b"apart"))
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """libnvToolsExt.so.1 as NVIDIA ships it: calls through it are not through our headers."""
    name, version, platform = WHEEL
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--platform"),
            *(platform, "--only-binary=:all:", "-d", str(tmp_path), f"{name}=={version}"),
        ],
        check=False,
    )
    if done.returncode != 0:
        pytest.skip("no package index to take NVTX 2 from")
    (wheel,) = tmp_path.glob("*.whl")
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == SHA256
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract("nvidia/nvtx/lib/libnvToolsExt.so.1", tmp_path))


def test_nvtx_2_is_recorded(tracer_build: Path, library: Path, tmp_path: Path):
    ours = tracer_build / "libgapscope_trace.so"
    (cupti,) = (tracer_build / "tests" / "cupti-13.0").glob("libcupti.so.??")
    trace = tmp_path / "trace"
    more = {"NVTX_INJECTION64_PATH": str(ours), "GAPSCOPE_TRACE_DIR": str(trace)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(cupti), str(ours), str(library)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **more},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 1\n1 0\n", "")
    (process,) = trace.iterdir()
    names = {row["id"]: row["text"] for row in read_stream(process / "name.arrows").to_pylist()}
    rows = read_stream(process / "range.arrows").to_pylist()
    assert sorted((names[row["name"]], row["kind"]) for row in rows) == [
        ("apart", 1),
        ("here", 2),
        ("l\u00e9ger", 0),
        ("step 3", 0),
    ]
