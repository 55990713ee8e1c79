"""The wheel carries what it needs and works where there is no checkout."""

from __future__ import annotations

import ast
import os
import re
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.packaging


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--wheel-dir", str(out), str(ROOT)], check=True)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts of a new environment: the wheel, and the dependencies of this one by reference."""
    place = tmp_path_factory.mktemp("env")
    venv.create(place, with_pip=False)
    scripts = place / "bin"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    target = ["--python", str(scripts / "python"), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, *target, str(wheel)], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place)}))
    shared = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    # A .pth file inside a directory that a .pth file names is not read, so the checkout that is
    # installed editable here stays out.
    (packages / "dependencies.pth").write_text("\n".join(sorted(shared)) + "\n", encoding="utf-8")
    return scripts


def _run(arguments: list[str]) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(arguments, cwd="/", env=kept, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    views = {path.name for path in (ROOT / "sql" / "v1").glob("*.sql")}
    assert {f"gapscope/_data/sql/v1/{name}" for name in views} <= names
    assert "gapscope/_data/reports/templates/report.html.jinja" in names
    assert "gapscope/_data/reports/assets/palette.json" in names
    assert "gapscope/instrument/site/sitecustomize.py" in names
    assert {"gapscope/sample/rank0.json.gz", "gapscope/sample/rank1.json.gz"} <= names
    assert "gapscope/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.endswith(".cases.yaml")]
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gapscope"}


def test_is_pure_python_and_small(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < 2_000_000


def _imported(nodes: Iterable[ast.AST]) -> set[str]:
    """First names of what is imported from outside the package and the standard library."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module).split(".")[0])
    return found - set(sys.stdlib_module_names) - {"gapscope"}


def test_every_import_is_a_declared_dependency(wheel):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    text = archive.read(name).decode()

    def required(extra: str) -> set[str]:
        found = re.findall(rf"^Requires-Dist: ([\w-]+){extra}$", text, re.MULTILINE)
        return {requirement.replace("-", "_").lower() for requirement in found}

    always = required("(?!.*extra).*") | {"markupsafe"}  # jinja2 is built on it
    clustered = always | required(".*extra == 'cluster'")
    # Inside a traced program there is torch, which GapScope never asks for.
    traced = required(".*extra == 'trace'") | {"torch"}
    assert always < clustered
    assert traced > {"torch"}
    for source in (ROOT / "gapscope").rglob("*.py"):
        tree = ast.parse(source.read_text(encoding="utf-8"))
        if "instrument" in source.relative_to(ROOT).parts:
            assert _imported(ast.walk(tree)) <= traced, source
            continue
        # What an extra brings is imported where it is used, so that the rest does without.
        assert _imported(tree.body) <= always, source
        assert _imported(ast.walk(tree)) <= clustered, source


def test_demo_and_sql_run_from_the_root_directory(installed, tmp_path):
    program = str(installed / "gapscope")
    where = _run([str(installed / "python"), "-c", "import gapscope; print(gapscope.__file__)"])
    assert Path(where.strip()).is_relative_to(installed.parent)
    printed = _run([program, "demo", "-o", str(tmp_path)])
    assert printed == f"{tmp_path}/gapscope-demo.run\n{tmp_path}/gapscope-demo-report.html\n"
    assert (tmp_path / "gapscope-demo-report.html").stat().st_size > 10_000
    assert "v1.step_budget" in _run([program, "sql", "--list"])
    counted = _run(
        [program, "sql", f"{tmp_path}/gapscope-demo.run", "--format", "csv", "-c", "FROM rank"]
    )
    assert len(counted.splitlines()) == 3
