"""A wrong SPEC is told in one line that names the key."""

from __future__ import annotations

import pytest

from gapscope.cli.app import run
from gapscope.errors import GapscopeError
from gapscope.simulate.spec import parse


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ranks = ", "not TOML"),
        ("rank = 2", "`rank`"),
        ("ranks = 0", "`ranks` is a whole number from 1 to 1024"),
        ("ranks = 2000", "`ranks`"),
        ("ranks = true", "`ranks`"),
        ("steps = 1.5", "`steps` is a whole number"),
        ("model = 3", "`model` is a section"),
        ("[model]\nlayers = 3", "`model.layers`"),
        ("[model]\nroot_parameters = 1", "`model.root_parameters` is true or false"),
        ("[model]\ngradient_sync = 'never'", "`model.gradient_sync` is one of every, last"),
        ("[compute]\nforward_ms = -1", "`compute.forward_ms` is a number"),
        ("[compute]\nforward_ms = nan", "`compute.forward_ms` is a number"),
        ("[compute]\nforward_ms = '5'", "`compute.forward_ms`"),
        ("[device]\nqueues = 'three'", "`device.queues` is one of none, two, one"),
        ("[device]\nevent_floor_us = [9, 8]", "`device.event_floor_us` is [least, most]"),
        ("injection = 3", "`injection` is a list"),
        ("injection = [3]", "`injection` is a list"),
        ("[[injection]]\nclass = 'R9'", "`injection[0].class` is one of R1"),
        ("[[injection]]\nplace = 'sleep'", "`injection[0].class`"),
        ("[[injection]]\nclass = 'R3'\nplace = 'nap'", "`injection[0].place` of R3"),
        ("[[injection]]\nclass = 'R1'", "`injection[0].amount_ms` is missing"),
        ("[[injection]]\nclass = 'H1'", "`injection[0].factor` is missing"),
        ("[[injection]]\nclass = 'R2'\nranks = [0]", "`injection[0].ranks` for R2 hw_queue"),
        (
            "[[injection]]\nclass = 'R3'\namount_ms = 1\nranks = [2]",
            "`injection[0].ranks` are numbers from 0 to 1",
        ),
        (
            "[[injection]]\nclass = 'R1'\namount_ms = 1\nblocks = [-1]",
            "`injection[0].blocks` are numbers from 0 to 5",
        ),
        (
            "[[injection]]\nclass = 'R1'\namount_ms = 1\nsteps = 3",
            "`injection[0].steps` is a list of whole numbers",
        ),
        (
            "[model]\nroot_parameters = false\n[[injection]]\nclass = 'H1'\nfactor = 2",
            "H1 needs `model.root_parameters",
        ),
        ("[device]\nqueues = 'two'\n[[injection]]\nclass = 'R2'", "`device.queues = "),
    ],
)
def test_the_key_is_named(text, named):
    with pytest.raises(GapscopeError) as told:
        parse(text)
    assert told.value.slug == "bad-spec"
    assert named in told.value.message
    assert "\n" not in told.value.message
    assert "gapscope simulate --example" in told.value.hint


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        (["simulate"], "usage"),
        (["simulate", "no.toml"], "no-spec"),
        (["simulate", "."], "no-spec"),
        (["simulate", "--example", "bad.toml"], "usage"),
        (["simulate", "bad.toml"], "bad-spec"),
        (["simulate", "binary.toml"], "no-spec"),
        (["simulate", "good.toml", "-o", "here"], "exists"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(tmp_path, monkeypatch, capsys, arguments, slug):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text("ranks = 0")
    (tmp_path / "good.toml").write_text("steps = 1")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "here").mkdir()
    before = sorted(tmp_path.iterdir())
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"error[{slug}]: ")
    assert sorted(tmp_path.iterdir()) == before
