"""`[model]` of gapscope.toml: what is accepted, and the one line that refuses the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapscope import config
from gapscope.errors import GapscopeError

if TYPE_CHECKING:
    from pathlib import Path

SHAPES = """
layers = 48
hidden = 2048
heads = 32
kv_heads = 4
head_dim = 128
ffn_hidden = 6144
gated = true
vocab = 151936
experts = 128
experts_per_token = 8
shared_experts = 1
moe_layers = 47
expert_ffn_hidden = 768
shared_expert_ffn_hidden = 768
causal = true
recompute = "selective"
peak_tflops = 989.4
"""


def _read(directory: Path, text: str) -> dict[str, dict[str, object]]:
    file = directory / "gapscope.toml"
    file.write_text(f"[model]\n{text}")
    return config.read(file)


def test_every_shape_can_be_declared(tmp_path: Path) -> None:
    table = _read(tmp_path, SHAPES)["model"]
    assert set(table) == set(config.model.KEYS) - {"flops_per_token"}
    assert _read(tmp_path, "flops_per_token = 5.8e10\npeak_tflops = 989.4\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("layers = 0", "`layers` is 0"),
        ("gated = 1", "`gated` is 1"),
        ('recompute = "some"', "`recompute` is 'some'"),
        ("width = 3", "no key `width`"),
        ("peak_tflops = -1.0", "`peak_tflops` is -1.0"),
        ("flops_per_token = 3e9\nlayers = 2", "flops_per_token and layers both say"),
        ("heads = 32\nkv_heads = 5", "kv_heads 5 does not divide heads 32"),
        ("heads = 48\nhidden = 2047", "heads 48 does not divide hidden 2047"),
        ("experts_per_token = 2", "experts_per_token needs experts"),
        ("experts = 4\nexperts_per_token = 8", "experts_per_token 8 of experts 4"),
        ("experts = 4\nlayers = 2\nmoe_layers = 3", "moe_layers 3 of layers 2"),
    ],
)
def test_what_cannot_be_true_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(GapscopeError) as caught:
        _read(tmp_path, text)
    assert caught.value.slug == "bad-config"
    assert said in caught.value.message
