"""`specfuzz conform`: what it takes, what it says, and its exit statuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import is_one_sentence, specfuzz

ONE = ["--config", "overlap=true"]  # any flag that describes an engine: a single configuration is run


def test_a_system_that_keeps_its_contract_is_status_0_with_every_key() -> None:
    answer = specfuzz("conform", "reference", *ONE, "--json")
    data = answer.json
    assert (answer.status, data["verdict"], data["violations"]) == (0, "holds", [])
    assert data["system"] == "reference" and data["events"] > 100 and len(data["configs"]) == 1
    assert data["clauses"] and all(set(clause) == {"name", "passed", "because"} for clause in data["clauses"])
    assert all(clause["passed"] is True and clause["because"] for clause in data["clauses"])
    aside = {clause["name"]: clause["because"] for clause in data["not_applicable"]}
    assert "no configuration that was run claims TREE" in aside["claimed-tree-is-real"]
    assert not set(aside) & {clause["name"] for clause in data["clauses"]}


def test_a_broken_clause_is_status_1_and_says_why() -> None:
    answer = specfuzz("conform", "mutated:over-allocation-leaked", *ONE, "--clause", "idle-frees-everything")
    assert answer.status == 1 and "FAILS   idle-frees-everything" in answer.out
    assert "idle and empty:" in answer.out and "VIOLATED system mutated:over-allocation-leaked" in answer.out


def test_nothing_that_could_be_judged_is_status_3() -> None:
    answer = specfuzz("conform", "reference", *ONE, "--clause", "claimed-tree-is-real", "--json")
    assert (answer.status, answer.json["verdict"], answer.json["clauses"]) == (3, "unknown", [])


def test_the_contract_can_be_read_without_a_subject() -> None:
    contract = specfuzz("conform", "--list", "--json").json["contract"]
    assert {entry["of"] for entry in contract} == {"system", "algorithm"}
    assert "A refused event leaves every request" in specfuzz("conform", "--list").out


def test_an_algorithm_is_checked_on_the_reference() -> None:
    answer = specfuzz("conform", "NONE", "--clause", "publishes-once-per-forward", "--json")
    assert answer.status == 0 and answer.json["algorithm"] == "NONE"
    shapes = {(config["overlap"], config["page_size"]) for config in answer.json["configs"]}
    assert {(True, 1), (True, 4), (False, 1), (False, 4)} <= shapes


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["refrence"], "Did you mean `reference`"),
        (["EAGEL"], "Did you mean `EAGLE`"),
        (["mutated:reserve-1"], "Did you mean `reserve-1x`"),
        (["reference", "--clause", "drain-ends"], "Did you mean `draining-ends`"),
        (["EAGLE", "--page-size", "4"], "fixed configurations"),
        (["reference", "--page-size", "3"], "`page_size`=3"),
        ([], "name a system or an algorithm"),
    ],
)
def test_wrong_use_is_one_sentence_and_status_2(arguments: list[str], says: str) -> None:
    answer = specfuzz("conform", *arguments)
    assert answer.status == 2 and is_one_sentence(answer.err) and says in answer.err, answer


def test_a_missing_engine_is_status_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFUZZ_ENGINES_DIR", str(tmp_path))
    answer = specfuzz("conform", "sglang", "--json")
    assert answer.status == 4 and answer.json["error"]["kind"] == "missing-part"
