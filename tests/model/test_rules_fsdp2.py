"""The rules of FSDP2, one program after the other, so that each can be checked against the rule book.

A program is what the host issues, in that order. `R` is the root, `'` the gather of backward, `#2`
the second node of that name in the step. Expected edges are complete: `rule (class) before -> after`.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapscope.model import bound
from gapscope.model.rules.book import CLASSES, Node
from gapscope.model.rules.fsdp2 import COLLECTIVES, RULE, RULES, Capacity, edges, stream_waits
from tests.model.synth import Model, edge_lines, lines, names, program, run

# Rule book, section 5: root with embedding and head, two blocks, K = 1; one line a row or two.
WORKED_EXAMPLE = """
    AGIN(R) AG(R) AGOUT(R) FWD(R)               -- rows 1-4, embedding
    AGIN(1) AG(1) AGOUT(1) FWD(1)               -- 5-8
    AGIN(2) AG(2) AGOUT(2) FWD(2)               -- 9-12
    FWD(R)#2                                    -- 13, head and loss
    BWD(R) AGIN'(2) AG'(2)                      -- 14-17, loss and head, and the prefetch between
    AGOUT'(2) AGIN'(1) AG'(1) BWD(2)            -- 18-21
    RSIN(2) RS(2) POST(2)                       -- 22-24
    AGOUT'(1) BWD(1) RSIN(1) RS(1) POST(1)      -- 25-28
    BWD(R)#2 RSIN(R) RS(R) POST(R)              -- 29-31, embedding, root callback
    OPT(R)                                      -- 32-33
"""


def found(text: str, capacity: Capacity | None = None) -> set[str]:
    made = program(text)
    return edge_lines(made, edges(made, capacity))


def only(rules: str, of: set[str]) -> set[str]:
    """Edges of these rules."""
    return {line for line in of if line.split()[0] in rules.split()}


def test_worked_example() -> None:
    assert found(WORKED_EXAMPLE) == lines("""
        F2 (a) AGIN(R) -> AG(R)         -- row 2
        F3 (a) AG(R) -> AGOUT(R)        -- 3
        F4 (a) AGOUT(R) -> FWD(R)       -- 4
        F2 (a) AGIN(1) -> AG(1)         -- 6
        F3 (a) AG(1) -> AGOUT(1)        -- 7
        F4 (a) AGOUT(1) -> FWD(1)       -- 8
        FF (a) FWD(R) -> FWD(1)
        F6 (b) AGOUT(R) -> AGIN(2)      -- 9: co_R
        F2 (a) AGIN(2) -> AG(2)         -- 10
        F3 (a) AG(2) -> AGOUT(2)        -- 11
        F4 (a) AGOUT(2) -> FWD(2)       -- 12
        FF (a) FWD(1) -> FWD(2)
        FF (a) FWD(2) -> FWD(R)#2       -- 13
        FB (a) FWD(R)#2 -> BWD(R)       -- 14
        F9 (b) AGOUT(2) -> AGIN'(2)     -- 15: co_2
        F2 (a) AGIN'(2) -> AG'(2)       -- 16
        B1 (a) AG'(2) -> AGOUT'(2)      -- 18
        B2 (b) AGOUT'(2) -> AGIN'(1)    -- 19: co'_2
        F2 (a) AGIN'(1) -> AG'(1)       -- 20
        B1b (a) AGOUT'(2) -> BWD(2)     -- 21
        BB (a) BWD(R) -> BWD(2)
        B4 (a) BWD(2) -> RSIN(2)        -- 22: no RS wait yet
        B6 (a) RSIN(2) -> RS(2)         -- 23
        B9 (a) RS(2) -> POST(2)         -- 24
        B1 (a) AG'(1) -> AGOUT'(1)      -- 25
        B1b (a) AGOUT'(1) -> BWD(1)     -- 26
        BB (a) BWD(2) -> BWD(1)
        B4 (a) BWD(1) -> RSIN(1)        -- 27
        B5 (b) RS(2) -> RSIN(1)         -- 27: rs_2
        B6 (a) RSIN(1) -> RS(1)         -- 28
        B9 (a) RS(1) -> POST(1)
        BB (a) BWD(1) -> BWD(R)#2       -- 29
        B4 (a) BWD(R)#2 -> RSIN(R)      -- 30
        B5 (b) RS(1) -> RSIN(R)         -- 30: rs_1
        B6 (a) RSIN(R) -> RS(R)         -- 31
        B9 (a) RS(R) -> POST(R)
        B11 (a) POST(2) -> OPT(R)       -- 32, by group
        B11 (a) POST(1) -> OPT(R)
        B11 (a) POST(R) -> OPT(R)
        B12 (b) RS(2) -> OPT(R)         -- 32: the reductions that are left
        B12 (b) RS(1) -> OPT(R)
        B12 (b) RS(R) -> OPT(R)
    """)


def test_the_hooks_issue_the_worked_example() -> None:
    assert names(run(Model(blocks=2)).nodes) == names(program(WORKED_EXAMPLE))


def test_one_engine_and_one_link_a_communicator() -> None:
    """Communicator order of the worked example: AG R,1,2, AG' 2,1 and RS between, as issued."""
    made = program(WORKED_EXAMPLE)
    of = bound.resource_edges(made)
    name = names(made)
    assert [name[e.after] for e in of if e.rule == "link"] == [
        "AG(1)", "AG(2)", "AG'(2)", "AG'(1)", "RS(2)", "RS(1)", "RS(R)",
    ]  # fmt: skip
    engine = [name[e.after] for e in of if e.rule == "engine"]
    assert engine[:4] == ["FWD(R)", "AGOUT(1)", "FWD(1)", "AGOUT(2)"]
    assert not {"AGIN(1)", "POST(1)"} & set(engine)


def test_no_reshard_no_second_gather() -> None:
    """`reshard_after_forward=False`: backward needs no gather, no copy-out, no buffer."""
    text = """
        AGIN(R) AG(R) AGOUT(R) FWD(R) AGIN(1) AG(1) AGOUT(1) FWD(1) FWD(R)#2
        BWD(R) BWD(1) RSIN(1) RS(1) POST(1) BWD(R)#2 RSIN(R) RS(R) POST(R) OPT(R)
    """
    assert names(run(Model(blocks=1, reshard=False)).nodes) == names(program(text))
    of = found(text)
    assert not only("B1 B1b B2 F9 F6", of)
    assert only("BB B5", of) == lines("""
        BB (a) BWD(R) -> BWD(1)
        BB (a) BWD(1) -> BWD(R)#2
        B5 (b) RS(1) -> RSIN(R)
    """)


def test_two_microbatches_that_each_reduce() -> None:
    """Gradients of a unit add up (G1); the second forward waits for all copy-outs of the first pass."""
    of = found("""
        AGIN(1) AG(1) AGOUT(1) FWD(1) FWD(R)
        BWD(R) AGIN'(1) AG'(1) AGOUT'(1) BWD(1) RSIN(1) RS(1) POST(1)
        AGIN(1)#2 AG(1)#2 AGOUT(1)#2 FWD(1)#2 FWD(R)#2
        BWD(R)#2 AGIN'(1)#2 AG'(1)#2 AGOUT'(1)#2 BWD(1)#2 RSIN(1)#2 RS(1)#2 POST(1)#2
        OPT(R)
    """)
    assert only("G1 F9 B2 F6", of) == lines("""
        G1 (a) POST(1) -> POST(1)#2
        F9 (b) AGOUT(1) -> AGIN'(1)
        F9 (b) AGOUT'(1) -> AGIN(1)#2
        F9 (b) AGOUT(1)#2 -> AGIN'(1)#2
    """)
    assert only("FF FB BB", of) == lines("""
        FF (a) FWD(1) -> FWD(R)
        FB (a) FWD(R) -> BWD(R)
        BB (a) BWD(R) -> BWD(1)
        FF (a) FWD(1)#2 -> FWD(R)#2     -- nothing from BWD(1): parameters do not change between
        FB (a) FWD(R)#2 -> BWD(R)#2
        BB (a) BWD(R)#2 -> BWD(1)#2
    """)
    assert only("B5 B11 B12", of) == lines("""
        B5 (b) RS(1) -> RSIN(1)#2
        B11 (a) POST(1) -> OPT(R)
        B11 (a) POST(1)#2 -> OPT(R)
        B12 (b) RS(1) -> OPT(R)
        B12 (b) RS(1)#2 -> OPT(R)
    """)


def test_two_microbatches_of_which_the_last_reduces() -> None:
    """`set_requires_gradient_sync(False)`: the first has no RSIN, RS or POST; no G1."""
    made = run(Model(blocks=2, microbatches=2, reduces_each_microbatch=False)).nodes
    of = edge_lines(made, edges(made))
    assert only("B4 B5 G1 B11", of) == lines("""
        B4 (a) BWD(2)#2 -> RSIN(2)
        B4 (a) BWD(1)#2 -> RSIN(1)
        B4 (a) BWD(R)#4 -> RSIN(R)
        B5 (b) RS(2) -> RSIN(1)
        B5 (b) RS(1) -> RSIN(R)
        B11 (a) POST(2) -> OPT(R)
        B11 (a) POST(1) -> OPT(R)
        B11 (a) POST(R) -> OPT(R)
    """)


@pytest.mark.parametrize(
    ("depth", "gates"),
    [
        # Implicit: AG(g) is issued in pre_forward(g), once AGOUT(g-2) has freed its buffer.
        (0, "F6 (b) AGOUT(R) -> AGIN(2)\n F6 (b) AGOUT(1) -> AGIN(3)\n F6 (b) AGOUT(2) -> AGIN(4)"),
        # The unit that asks is one earlier, and so nothing but the host order changes.
        (1, "F6 (b) AGOUT(R) -> AGIN(2)\n F6 (b) AGOUT(1) -> AGIN(3)\n F6 (b) AGOUT(2) -> AGIN(4)"),
        # Unit 1 asks for 2 and 3, both gated by AGOUT(R); unit 2 for 4, gated by AGOUT(1).
        (2, "F6 (b) AGOUT(R) -> AGIN(2)\n F6 (b) AGOUT(R) -> AGIN(3)\n F6 (b) AGOUT(1) -> AGIN(4)"),
    ],
)  # fmt: skip
def test_explicit_prefetch_is_gated_by_the_copy_out_before_the_asking_unit(
    depth: int, gates: str
) -> None:
    made = run(Model(blocks=4, prefetch=depth)).nodes
    assert only("F6", edge_lines(made, edges(made))) == lines(gates)


def test_explicit_prefetch_is_issued_before_the_asking_units_forward() -> None:
    assert names(run(Model(blocks=3, prefetch=1)).nodes)[4:14] == [
        "AGIN(1)", "AG(1)", "AGOUT(1)", "AGIN(2)", "AG(2)", "FWD(1)", "AGOUT(2)", "AGIN(3)", "AG(3)", "FWD(2)",
    ]  # fmt: skip


def test_root_without_parameters_has_no_group() -> None:
    """Compute of the root stays, its gathers and reductions do not exist; the first gathers wait for nothing."""
    of = found("""
        AGIN(1) AG(1) AGOUT(1) FWD(1) AGIN(2) AG(2) AGOUT(2) FWD(2) AGIN(3) AG(3) AGOUT(3) FWD(3) FWD(R)
        BWD(R) AGIN'(3) AG'(3) AGOUT'(3) AGIN'(2) AG'(2) BWD(3) RSIN(3) RS(3) POST(3)
        AGOUT'(2) AGIN'(1) AG'(1) BWD(2) RSIN(2) RS(2) POST(2)
        AGOUT'(1) BWD(1) RSIN(1) RS(1) POST(1) OPT(R)
    """)
    assert only("F6 F9 B2", of) == lines("""
        F6 (b) AGOUT(1) -> AGIN(3)
        F9 (b) AGOUT(3) -> AGIN'(3)
        B2 (b) AGOUT'(3) -> AGIN'(2)
        B2 (b) AGOUT'(2) -> AGIN'(1)
    """)
    assert {line for line in of if "BWD(R)" in line} == lines("""
        FB (a) FWD(R) -> BWD(R)
        BB (a) BWD(R) -> BWD(3)
    """)


def test_hybrid_sharding_reduces_over_replicas_before_post() -> None:
    of = found("""
        AGIN(1) AG(1) AGOUT(1) FWD(1) BWD(1) RSIN(1) RS(1) AR(1) POST(1) OPT(R)
    """)
    assert {line for line in of if "AR(1)" in line or "POST(1)" in line} == lines("""
        B9r (a) RS(1) -> AR(1)
        B9p (a) AR(1) -> POST(1)
        B11 (a) POST(1) -> OPT(R)
        B12 (b) AR(1) -> OPT(R)
    """)


def test_replicas_and_shards_are_two_links() -> None:
    made = program("RS(2) AR(2) RS(1) AR(1)")
    assert edge_lines(made, bound.resource_edges(made)) == lines("""
        link (resource) RS(2) -> RS(1)
        link (resource) AR(2) -> AR(1)
    """)


def test_clipping_reduces_the_norm_between_two_parts_of_the_optimizer() -> None:
    of = found("""
        FWD(R) BWD(R) RSIN(R) RS(R) POST(R) OPT(R) COMM(R) OPT(R)#2
    """)
    assert only("B11 B12 N1 N2", of) == lines("""
        B11 (a) POST(R) -> OPT(R)       -- the norm reads the gradients
        B12 (b) RS(R) -> OPT(R)
        N1 (a) OPT(R) -> COMM(R)
        N2 (a) COMM(R) -> OPT(R)#2
    """)


def test_a_norm_reduced_before_any_kernel_of_the_optimizer_waits_for_the_gradients() -> None:
    of = found("BWD(1) RSIN(1) RS(1) POST(1) COMM(R) OPT(R)")
    assert {line for line in of if "COMM" in line} == lines("""
        B11 (a) POST(1) -> COMM(R)
        B12 (b) RS(1) -> COMM(R)
        N2 (a) COMM(R) -> OPT(R)
    """)


def test_an_optimizer_without_reductions_waits_for_the_last_backward() -> None:
    assert found("FWD(R) BWD(R) OPT(R)") == lines("""
        FB (a) FWD(R) -> BWD(R)
        B11 (a) BWD(R) -> OPT(R)
    """)


def test_token_embedding_reduces_after_all_of_backward() -> None:
    """Its input needs no gradient, so only the root callback reduces it, last and exposed; it is gathered again in vain."""
    made = run(Model(blocks=1, token_group=True, has_root_parameters=False)).nodes
    assert names(made) == names(program("""
        AGIN(tok) AG(tok) AGOUT(tok) FWD(tok) AGIN(1) AG(1) AGOUT(1) FWD(1) FWD(R)
        BWD(R) AGIN'(1) AG'(1) AGOUT'(1) AGIN'(tok) AG'(tok) BWD(1) RSIN(1) RS(1) POST(1)
        AGOUT'(tok) BWD(tok) RSIN(tok) RS(tok) POST(tok) OPT(R)
    """))  # fmt: skip
    of = edge_lines(made, edges(made))
    assert {line for line in of if "'(tok)" in line or "RSIN(tok)" in line} == lines("""
        F2 (a) AGIN'(tok) -> AG'(tok)
        B1 (a) AG'(tok) -> AGOUT'(tok)
        B1b (a) AGOUT'(tok) -> BWD(tok)
        B2 (b) AGOUT'(1) -> AGIN'(tok)
        B4 (a) BWD(tok) -> RSIN(tok)
        B5 (b) RS(1) -> RSIN(tok)
        B6 (a) RSIN(tok) -> RS(tok)
    """)


def test_one_more_buffer_of_each_kind() -> None:
    of = run(Model(blocks=4)).nodes
    more = edge_lines(of, edges(of, Capacity().plus_one()))
    assert only("F6 B2 B5", more) == lines("""
        F6 (b) AGOUT(R) -> AGIN(3)      -- three in forward
        F6 (b) AGOUT(1) -> AGIN(4)
        B2 (b) AGOUT'(4) -> AGIN'(2)    -- two in backward
        B2 (b) AGOUT'(3) -> AGIN'(1)
        B5 (b) RS(4) -> RSIN(2)         -- K = 2
        B5 (b) RS(3) -> RSIN(1)
        B5 (b) RS(2) -> RSIN(R)
    """)
    same = edge_lines(of, edges(of))
    assert {x for x in same if "(a)" in x} == {x for x in more if "(a)" in x}


def test_capacity_defaults_are_those_of_torch() -> None:
    assert Capacity() == Capacity(forward_gathers=2, backward_gathers=1, reduce_inputs=1)


# ------------------------------------------------------------------------------ the book as a whole

PROGRAMS: tuple[tuple[Node, ...], ...] = (
    program(WORKED_EXAMPLE),
    tuple(run(Model(blocks=4, prefetch=2, is_hybrid=True, clips=True)).nodes),
    tuple(run(Model(blocks=2, microbatches=2, token_group=True)).nodes),
)


def test_every_data_and_buffer_rule_is_produced() -> None:
    """All but F1: the optimizer of the step before ends where the step begins, so that it is no edge within one."""
    produced = {e.rule for of in PROGRAMS for e in edges(of)}
    assert produced == {rule.id for rule in RULES if rule.edge_class in ("a", "b")} - {"F1"}


def test_the_first_gather_of_a_later_microbatch_waits_for_the_compute_stream() -> None:
    of = tuple(run(Model(blocks=2, microbatches=2)).nodes)
    assert edge_lines(of, stream_waits(of)) == lines("""
        F1' (c) RSIN(R) -> AGIN(R)#2
        F1' (c) POST(R) -> AGIN(R)#2
    """)


def test_rules_are_named_once_and_say_where_torch_does_it() -> None:
    assert len(RULE) == len(RULES)
    for rule in RULES:
        assert rule.edge_class in CLASSES
        assert len(rule.reason) > 10, rule.id
        assert len(rule.source) > 5, rule.id


# What the callback, and the norm that stands for the optimizer, wait for beside the rule's own kinds.
VARIANTS = {("B11", "BWD", "OPT"), ("B12", "AR", "OPT"), ("B11", "POST", "COMM"), ("B12", "RS", "COMM")}  # fmt: skip

models = st.builds(
    Model,
    blocks=st.integers(1, 5),
    has_root_parameters=st.booleans(),
    reshard=st.booleans(),
    prefetch=st.integers(0, 3),
    microbatches=st.integers(1, 3),
    reduces_each_microbatch=st.booleans(),
    is_hybrid=st.booleans(),
    clips=st.booleans(),
    token_group=st.booleans(),
)


@given(models)
@settings(max_examples=150, deadline=None)
def test_edges_of_any_model(model: Model) -> None:
    """Forward in host order, data and buffers only, between the kinds that the rule names, each pair once."""
    of = run(model).nodes
    made = edges(of)
    assert all(e.before < e.after for e in made)
    assert {e.edge_class for e in made} <= {"a", "b"}
    assert len({(e.before, e.after) for e in made}) == len(made)
    for e in made:
        rule, before, after = RULE[e.rule], of[e.before].kind, of[e.after].kind
        assert e.edge_class == rule.edge_class
        assert (before, after) == (rule.before, rule.after) or (e.rule, before, after) in VARIANTS
    with_a_producer = {e.after for e in made}
    for i, node in enumerate(of):
        if node.kind in COLLECTIVES or node.kind in ("AGOUT", "RSIN", "POST", "OPT", "BWD"):
            assert i in with_a_producer, node.name


@given(models)
@settings(max_examples=100, deadline=None)
def test_more_buffers_only_relax(model: Model) -> None:
    """What must end before what with one more buffer, must with the usual ones: no order is new."""
    of = run(model).nodes
    usual, more = edges(of), edges(of, Capacity().plus_one())
    reach = [1 << i for i in range(len(of))]
    for e in usual:
        reach[e.after] |= reach[e.before]
    engine = bound.resource_edges(of)
    for e in sorted([*usual, *engine], key=lambda e: e.after):
        reach[e.after] |= reach[e.before]
    assert all(reach[e.after] >> e.before & 1 for e in more)


@given(models, st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_what_the_hooks_make_the_device_wait_for_implies_every_edge(
    model: Model, seed: int
) -> None:
    """A machine that only knows streams, events and communicators never breaks a rule, whatever the times."""
    from tests.model.synth import batch_of, random_lengths

    machine = run(
        model, ranks=2, length=random_lengths(seed), pause=random_lengths(seed + 1, 30, 0)
    )
    batch = batch_of([machine])
    for e in edges(batch.program):
        assert (batch.node_end[e.before] <= batch.node_start[e.after]).all(), e


def test_the_machine_breaks_what_no_rule_and_no_stream_demands() -> None:
    """The check above can fail: two gathers ahead of the buffers' limit is no rule, and does not hold."""
    from tests.model.synth import batch_of, random_lengths

    of = names(run(Model(blocks=4)).nodes)
    batch = batch_of([run(Model(blocks=4), length=random_lengths(3))])
    before, after = of.index("AGOUT(2)"), of.index("AGIN(3)")
    assert before < after
    assert batch.node_end[before] > batch.node_start[after]
