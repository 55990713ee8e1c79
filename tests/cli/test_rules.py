"""`gapscope rules` as it is typed: the packs, a pack, and what a run makes of it."""

from __future__ import annotations

import json
import shutil

import duckdb
import pytest

from gapscope.model.rules.fsdp2 import RULES


def test_without_a_pack_lists_the_packs(gapscope, tmp_path):
    done = gapscope("rules", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith("fsdp2  FSDP2 ")
    assert done.stdout.splitlines()[2].endswith(f" {len(RULES)}")
    content = json.loads(gapscope("rules", "--json", cwd=tmp_path).stdout)
    assert list(content) == ["schema", "packs"]
    assert content["packs"][0]["rule_count"] == len(RULES)


def test_a_pack_is_printed_whole_within_80_columns(gapscope, tmp_path):
    done = gapscope("rules", "fsdp2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    said = " ".join(done.stdout.split())
    for rule in RULES:
        whole = f"{rule.id} {rule.before} -> {rule.after} ({rule.edge_class}) {rule.reason}"
        assert f"{whole} {rule.source}" in said


def test_classes_choose_rules(gapscope):
    content = json.loads(gapscope("rules", "fsdp2", "--class", "b, d", "--json").stdout)
    assert content["schema"] == "gapscope.rules/1"
    wanted = [rule.id for rule in RULES if rule.edge_class in ("b", "d")]
    assert [rule["id"] for rule in content["rules"]] == wanted
    assert wanted
    text = gapscope("rules", "fsdp2", "--class", "d").stdout
    assert text.count(" -> ") == sum(rule.edge_class == "d" for rule in RULES)
    assert "class a" not in text


def test_of_a_run_counts_instances_and_binding(gapscope, tiny_run):
    done = gapscope("rules", "fsdp2", "--run", tiny_run)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    content = json.loads(gapscope("rules", "fsdp2", "--run", tiny_run, "--json").stdout)
    rows = {row["id"]: row for row in [*content["rules"], *content["orders"]]}
    # 2 ranks, 3 steps, 7 units: one gather forward each, all but the root's again in backward.
    assert rows["F3"]["instances"] == 2 * 3 * 7
    assert rows["B1"]["instances"] == 2 * 3 * 6
    of_bound = [rows[rule.id] for rule in RULES if rule.edge_class in ("a", "b")]
    assert {row["violations"] for row in of_bound} <= {0, None}
    assert sum(row["instances"] or 0 for row in of_bound) >= 636
    assert rows["FB"]["binds"] == 3
    assert rows["Q1"]["held_ns"] > 100_000_000
    assert rows["F7"]["instances"] is None


def test_a_rule_that_does_not_hold_is_counted(gapscope, tiny_run, tmp_path):
    """The nodes as a table of their own, with one that starts before what it needs."""
    broken = tmp_path / "broken.run"
    shutil.copytree(tiny_run, broken)
    with duckdb.connect(str(broken / "run.duckdb")) as con:
        con.execute("CREATE TABLE nodes AS FROM v1.program_node")
        con.execute(
            "UPDATE nodes SET start_ns = 0 WHERE rank = 1 AND step_id = 1 AND node = 'FWD(blocks.2)'"
        )
        con.execute("CREATE OR REPLACE VIEW v1.program_node AS FROM main.nodes")
    content = json.loads(gapscope("rules", "fsdp2", "--run", broken, "--json").stdout)
    broken_rules = {row["id"]: row["violations"] for row in content["rules"] if row["violations"]}
    assert broken_rules == {"F4": 1, "FF": 1, "Q1": broken_rules["Q1"]}


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        (["rules", "ddp"], "unknown-pack"),
        (["rules", "fsdp2", "--class", "a,f"], "usage"),
        (["rules", "--class", "a"], "usage"),
        (["rules", "--run", "x.run"], "usage"),
        (["rules", "fsdp2", "--run", "x.run"], "no-run"),
    ],
)
def test_errors_say_what_to_type(gapscope, tmp_path, arguments, slug):
    done = gapscope(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    first, hint = done.stderr.splitlines()
    assert first.startswith(f"error[{slug}]: ")
    assert hint.startswith("  hint: ")


def test_a_run_without_a_program_is_inconclusive(gapscope, tiny_run, tmp_path):
    bare = tmp_path / "bare.run"
    shutil.copytree(tiny_run, bare)
    with duckdb.connect(str(bare / "run.duckdb")) as con:
        con.execute("CREATE TABLE nodes AS FROM v1.program_node LIMIT 0")
        con.execute("CREATE OR REPLACE VIEW v1.program_node AS FROM main.nodes")
        for table in ("bound_node", "gap_piece", "hardware_queue"):
            con.execute(f"DELETE FROM v1.{table}")
    done = gapscope("rules", "fsdp2", "--run", bare)
    assert done.returncode == 3
    assert done.stderr.startswith("error[no-program]: ")
