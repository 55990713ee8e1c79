"""Fetch what the tracer is built from: nanoarrow's sdist, and CUDA's headers from NVIDIA's wheels.

Everything is pinned by version and SHA-256 and comes through pip, so an index, a proxy or a mirror
that pip is configured for is used. Nothing of it is ever committed.

    python fetch.py DIRECTORY     (fills DIRECTORY/nanoarrow and DIRECTORY/include)
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

NANOARROW = (
    "nanoarrow",
    "0.9.0",
    "1ce15bbed8532839347faa78824c5dbd3769bff60661003e34c6fba5dd881bd3",
)
# Headers only; the libraries in the same wheels are left out. The x86-64 wheels hold the same
# headers as the others.
WHEELS = (
    (
        "nvidia-cuda-cupti",
        "13.0.85",
        "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
    ),
    (
        "nvidia-cuda-runtime",
        "13.0.96",
        "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
    ),
    (
        "nvidia-cuda-crt",
        "13.0.88",
        "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
    ),
    (
        "nvidia-nvtx",
        "13.0.85",
        "4936d1d6780fbe68db454f5e72a42ff64d1fd6397df9f363ae786930fd5c1cd4",
    ),
)
PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_25_x86_64",
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)
# pip cannot download an sdist without building it first; unearth is the finder of PDM, and can.
FINDER = "unearth==0.19.0"
DONE = "complete"


def main() -> None:
    """Fill the directory, unless a run before this one did."""
    target = Path(sys.argv[1]).resolve()
    stamp = target / DONE
    pins = repr((NANOARROW, WHEELS))
    if stamp.exists() and stamp.read_text() == pins:
        return
    shutil.rmtree(target, ignore_errors=True)
    downloads = target / "downloads"
    downloads.mkdir(parents=True)
    try:
        _fetch_nanoarrow(target, downloads)
        _fetch_headers(target, downloads)
    except subprocess.CalledProcessError as error:
        sys.exit(f"fetch.py: {' '.join(error.cmd[:5])} ... failed with {error.returncode}")
    shutil.rmtree(downloads)
    stamp.write_text(pins)


def _fetch_nanoarrow(target: Path, downloads: Path) -> None:
    name, version, digest = NANOARROW
    finder = downloads / "finder"
    _pip("install", "--target", str(finder), FINDER)
    wanted = ("--no-binary", "-d", str(downloads), f"{name}=={version}")
    subprocess.run(
        [sys.executable, "-m", "unearth", *wanted],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(finder)},
    )
    archive = downloads / f"{name}-{version}.tar.gz"
    _check(archive, digest)
    with tarfile.open(archive) as tar:
        # The archive is the one that was looked at when its digest was written down.
        tar.extractall(downloads)  # noqa: S202 -- see above
    unpacked = downloads / f"{name}-{version}" / "subprojects"
    (flatcc,) = unpacked.glob("flatcc-*/")
    (lz4,) = unpacked.glob("lz4-*/")
    bundle = unpacked / "arrow-nanoarrow/ci/scripts/bundle.py"
    wanted = ("--output-dir", str(target / "nanoarrow"), "--with-ipc")
    subprocess.run(
        [sys.executable, str(bundle), *wanted, "--symbol-namespace", "GapScope"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.copytree(flatcc / "include", target / "flatcc" / "include")
    for file in ("builder.c", "emitter.c", "refmap.c", "verifier.c"):
        shutil.copy(flatcc / "src" / "runtime" / file, target / "flatcc")
    (target / "lz4").mkdir()
    for file in (lz4 / "lib").glob("*.[ch]"):
        shutil.copy(file, target / "lz4")


def _fetch_headers(target: Path, downloads: Path) -> None:
    platforms = [word for one in PLATFORMS for word in ("--platform", one)]
    _pip(
        *("download", "--no-deps", "--only-binary=:all:", *platforms, "-d", str(downloads)),
        *(f"{name}=={version}" for name, version, _ in WHEELS),
    )
    for name, version, digest in WHEELS:
        (wheel,) = downloads.glob(f"{name.replace('-', '_')}-{version}-*.whl")
        _check(wheel, digest)
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                _, found, path = member.partition("/include/")
                if found and path.endswith((".h", ".hpp")):
                    file = target / "include" / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(archive.read(member))


def _pip(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments],
        check=True,
        stderr=None,
    )


def _check(file: Path, digest: str) -> None:
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != digest:
        sys.exit(f"fetch.py: {file.name} has SHA-256 {found}, expected {digest}")


if __name__ == "__main__":
    main()
