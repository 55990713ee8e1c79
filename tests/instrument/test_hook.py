"""How the hooks come into a program, and that a program without FSDP2 does not notice them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gapscope.instrument.record import find_directory
from tests.conftest import ROOT

SITE = ROOT / "gapscope" / "instrument" / "site"


def python(code: str, *path: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **more},
    )


def package(place: Path, text: str = "value = 7\n") -> None:
    """A package of the name that is waited for."""
    place = place / "torch" / "distributed" / "fsdp" / "_fully_shard"
    place.mkdir(parents=True)
    for above in (place.parent, *place.parent.parents[:2]):
        (above / "__init__.py").write_text("")
    (place / "__init__.py").write_text(text)


SHOW = (
    "import torch.distributed.fsdp._fully_shard as m; print(m.value, type(m.__loader__).__name__)"
)


def test_a_program_without_torch_is_as_before():
    done = python(
        "import sys; print('torch' in sys.modules, 'nvtx' in sys.modules); sys.exit(5)", SITE
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, "False False\n", "")


def test_what_is_waited_for_is_imported_as_ever(tmp_path: Path):
    """Also where nothing in it is what FSDP2 has."""
    package(tmp_path)
    with_hook, without = python(SHOW, SITE, tmp_path), python(SHOW, tmp_path)
    assert with_hook.stdout == without.stdout == "7 SourceFileLoader\n"
    assert with_hook.stderr == ""
    assert (with_hook.returncode, without.returncode) == (0, 0)


def test_an_import_that_fails_fails_alike(tmp_path: Path):
    package(tmp_path, "raise ValueError('of the module')\n")
    with_hook, without = python(SHOW, SITE, tmp_path), python(SHOW, tmp_path)
    assert with_hook.returncode == without.returncode == 1
    last = [done.stderr.splitlines()[-1] for done in (with_hook, without)]
    assert last == ["ValueError: of the module"] * 2


def test_the_hook_is_called_once_the_module_is_whole(tmp_path: Path):
    package(tmp_path)
    code = (
        "import gapscope.instrument.import_hook as h, sys; n = 'torch.distributed.fsdp._fully_shard';"
        "h.after_import(n, lambda: print('called', sys.modules[n].value));"
        f"before = len(sys.meta_path); import {'torch.distributed.fsdp._fully_shard'};"
        "print(before - len(sys.meta_path)); h.after_import(n, lambda: print('at once'))"
    )
    assert python(code, tmp_path, ROOT).stdout == "called 7\n1\nat once\n"


def test_a_sitecustomize_behind_ours_is_run(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.mine = __file__, __name__\n")
    code = "import sys, sitecustomize; print(*sys.mine, sitecustomize.__file__)"
    theirs = str(tmp_path / "sitecustomize.py")
    assert python(code, SITE, tmp_path).stdout.split() == [theirs, "sitecustomize", theirs]


def test_a_sitecustomize_that_fails_says_so_as_ever(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('of the user')\n")
    with_hook, without = python("print(1)", SITE, tmp_path), python("print(1)", tmp_path)
    assert with_hook.stdout == without.stdout == "1\n"
    assert with_hook.stderr == without.stderr
    assert "of the user" in with_hook.stderr


def test_a_broken_instrument_is_silent(tmp_path: Path):
    """Nothing but the hook's own file is where it should be."""
    place = tmp_path / "instrument" / "site"
    place.mkdir(parents=True)
    (place / "sitecustomize.py").write_text((SITE / "sitecustomize.py").read_text())
    done = python("print(1)", place)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


@pytest.mark.parametrize("site", [(), (SITE,)])
def test_the_calls_do_nothing_without_fsdp2(site: tuple[Path, ...]):
    code = (
        "import gapscope.instrument as i, sys; i.fsdp2(); i.step(); i.fsdp2();"
        "print(sum(type(f).__name__ == '_After' for f in sys.meta_path), 'torch' in sys.modules)"
    )
    # With the hook there, the module that it loaded is the one that is called.
    done = python(code, *site, ROOT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 False\n", "")


def test_the_record_goes_to_no_other_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Hosts that write into one place may have processes of one number, and even of one name."""
    monkeypatch.setenv("GAPSCOPE_TRACE_DIR", str(tmp_path))
    pid = os.getpid()

    def traced(name: str, host: str) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.json").write_text(json.dumps({"hostname": host}))
        return tmp_path / name

    for rank in range(8, 16):
        traced(f"rank-{rank}-{pid}", "another-host")
    assert find_directory() is None
    first = traced(f"rank-3-{pid}", socket.gethostname())
    assert find_directory() == first
    after_exec = traced(f"rank-3-{pid}-2", socket.gethostname())
    assert find_directory() == after_exec
    traced(f"rank-20-{pid}", socket.gethostname())
    assert find_directory() is None
