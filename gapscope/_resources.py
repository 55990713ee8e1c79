"""Find `sql/` and `reports/`: inside the wheel, or beside the package in a checkout."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from gapscope.errors import GapscopeError

if TYPE_CHECKING:
    from importlib.abc import Traversable


def data_dir(name: str) -> Traversable:
    """Directory `sql` or `reports`; GapscopeError names both places when neither is there."""
    packaged = resources.files("gapscope") / "_data" / name
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    raise GapscopeError(
        "broken-installation",
        f"`{name}` is neither in the package (_data/{name}) nor beside it",
        "reinstall: `pip install --force-reinstall gapscope`",
    )


def read_text(*parts: str) -> str:
    """Text of one shipped file, e.g. `read_text("reports", "assets", "report.css")`."""
    node = data_dir(parts[0])
    for part in parts[1:]:
        node = node / part
    return node.read_text(encoding="utf-8")


def read_texts(name: str, folder: str, suffix: str) -> dict[str, str]:
    """Texts of all files with that suffix in one folder, by file name, sorted."""
    found = [node for node in (data_dir(name) / folder).iterdir() if node.name.endswith(suffix)]
    return {
        node.name: node.read_text(encoding="utf-8") for node in sorted(found, key=lambda n: n.name)
    }
