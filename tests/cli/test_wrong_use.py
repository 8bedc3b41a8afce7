"""Wrong use and unreadable input: one clear sentence on stderr, exit status 2, one JSON object with --json."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.cli.command import is_one_sentence, specfuzz

NOTATION = "submit(a,5,12) prefill(a) settle"
WRONG = {
    "no such command": ["fuz"],
    "a command of a later release": ["scan"],
    "no such flag": ["replay", NOTATION, "--pagesize", "4"],
    "no such oracle": ["fuzz", "--oracles", "committed-within-alocated"],
    "no such algorithm": ["fuzz", "--algorithm", "EAGEL"],
    "no such system": ["fuzz", "--system", "referense"],
    "no such config field": ["fuzz", "--config", "num_page=4"],
    "a config that is no pair": ["fuzz", "--config", "num_pages"],
    "a config value of another type": ["fuzz", "--config", "num_pages=many"],
    "an impossible config": ["fuzz", "--config", "spec_steps=5", "--config", "draft_token_num=3"],
    "an impossible page size": ["fuzz", "--page-size", "3"],
    "several engines where one is needed": ["replay", NOTATION, "--overlap", "both"],
    "no events": ["replay", "  "],
    "half an event": ["replay", "submit(a,5"],
    "an event that isn't one": ["explain", "submit(a,5,12) prefil(a)"],
    "no such file": ["shrink", "nowhere.jsonl"],
    "no such checkout": ["fuzz", "--system", "sglang", "--engine-path", "/nowhere/at/all"],
    "no such baseline": ["fuzz", "--baseline", "/nowhere/known.toml"],
    "a bound of nothing": ["fuzz", "--max-examples", "0"],
    "a seed below zero": ["fuzz", "--seed", "-1"],
    "an engine that needs no installation": ["systems", "install", "reference"],
    "an unknown engine to install": ["systems", "install", "vllmm"],
    "shrinking what holds": ["shrink", NOTATION],
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG.keys())
def test_wrong_use_is_one_sentence_and_status_2(arguments: list[str]) -> None:
    answer = specfuzz(*arguments)
    assert (answer.status, answer.out) == (2, ""), answer
    assert is_one_sentence(answer.err), answer.err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["replya", "idle"], "`replay`"),
        (["fuzz", "--max-exampels", "3"], "--max-examples"),
        (["fuzz", "--algorithm", "EAGEL"], "`EAGLE`"),
        (["fuzz", "--system", "referense"], "`reference`"),
        (["fuzz", "--config", "num_page=4"], "`num_pages`"),
        (["fuzz", "--system", "mutated:reserve-1"], "`reserve-1x`"),
    ],
)
def test_a_slip_of_the_pen_gets_a_did_you_mean(arguments: list[str], meant: str) -> None:
    answer = specfuzz(*arguments)
    assert "Did you mean" in answer.err and meant in answer.err


def test_an_error_is_one_json_object_and_keeps_the_common_keys() -> None:
    answer = specfuzz("fuzz", "--seed", "7", "--json", "--algorithm", "EAGEL")
    data = answer.json
    assert answer.status == 2 and data["error"]["kind"] == "unknown-name"
    assert (data["verb"], data["seed"], data["verdict"], data["violations"]) == ("fuzz", 7, "error", [])
    assert {"version", "seconds"} <= set(data) and data["error"]["message"] in answer.err


def valid_header(**changes: object) -> str:
    config = {"algorithm": "EAGLE", "overlap": True, "page_size": 1}
    return json.dumps({"format": "specfuzz-trace", "version": 1, "system": "reference", "config": config, **changes})


HOSTILE = {
    "empty": b"",
    "truncated": valid_header().encode() + b'\n{"event":{"do":"idle"}}\n',
    "half a line": valid_header().encode()[:40],
    "foreign version": valid_header(version=99).encode() + b'\n{"steps":0}\n',
    "another format": b'{"format":"junit","version":1}\n',
    "not JSON": b"\x89PNG\r\n\x1a\n\x00\x00",
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "deep inside": valid_header().encode() + b"\n" + b'{"event":' * 50_000 + b"}" * 50_000 + b'\n{"steps":1}\n',
    "escape codes": valid_header(system="\x1b[2Jreference").encode() + b'\n{"steps":0}\n',
    "an unknown field": valid_header(run="rm -rf /").encode() + b'\n{"steps":0}\n',
    "a huge pool": valid_header(config={"num_pages": 999_999, "page_size": 64}).encode() + b'\n{"steps":0}\n',
    "an impossible config": valid_header(config={"spec_steps": 9}).encode() + b'\n{"steps":0}\n',
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("verb", ["replay", "shrink", "explain"])
def test_a_hostile_trace_is_one_sentence_and_status_2(verb: str, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "hostile.jsonl"
    file.write_bytes(content)
    answer = specfuzz(verb, file)
    assert answer.status == 2 and is_one_sentence(answer.err), answer
    assert "\x1b" not in answer.err


def test_a_folder_and_a_device_are_no_traces(tmp_path: Path) -> None:
    for name in (tmp_path, Path("/dev/null")):
        answer = specfuzz("replay", name)
        assert answer.status == 2 and is_one_sentence(answer.err), answer


LONG = "A" * 1_000_000
WITHOUT_END = {
    "an algorithm": ["fuzz", "--algorithm", LONG],
    "a seed": ["fuzz", "--seed", "9" * 5000],
    "a command": [LONG],
    "an option": ["fuzz", "--" + LONG],
    "a system": ["replay", NOTATION, "--system", "re\nfer\x1b[2Jence " + LONG],
    "an oracle": ["oracles", "a b " * 100_000],
    "a config value": ["fuzz", "--config", "num_pages=" + LONG],
    "an event": ["replay", f"submit({LONG},1,2)"],
    "a file": ["replay", LONG + ".jsonl"],
    "a baseline": ["fuzz", "--baseline", LONG],
    "a corpus": ["fuzz", "--corpus", LONG],
    "a checkout": ["fuzz", "--system", "sglang", "--engine-path", LONG],
}


@pytest.mark.parametrize("arguments", WITHOUT_END.values(), ids=WITHOUT_END.keys())
def test_a_value_without_end_is_not_repeated_to_its_end(arguments: list[str]) -> None:
    answer = specfuzz(*arguments, "--json")
    assert answer.status == 2 and is_one_sentence(answer.err) and len(answer.err) < 4100
    assert answer.json["error"]["message"] in answer.err and len(answer.out) < 5000
    assert answer.err.strip().isprintable()


EMPTY = [
    ["oracles", ""], ["oracles", "page-has-one-owner", " "], ["oracles", "--oracles", ""], ["fuzz", "--oracles", ","],
    ["fuzz", "--system", ""], ["fuzz", "--algorithm", ""], ["fuzz", "--baseline", ""], ["fuzz", "--engine-path", ""],
    ["fuzz", "--corpus", ""], ["mutants", ""], ["systems", "install", ""], ["shrink", ""], ["fuzz", "--config", ""],
    [""],
]  # fmt: skip


@pytest.mark.parametrize("arguments", EMPTY, ids=" ".join)
def test_an_empty_name_is_not_taken_for_one_left_out(arguments: list[str]) -> None:
    answer = specfuzz(*arguments)
    assert (answer.status, answer.out) == (2, "") and is_one_sentence(answer.err), answer


@pytest.mark.parametrize("flag", ["--json=1", "--json=", "--json=true"])
def test_json_with_a_value_is_refused_as_json(flag: str) -> None:
    answer = specfuzz("oracles", flag)
    assert answer.status == 2 and answer.json["verdict"] == "error" and is_one_sentence(answer.err)


@pytest.mark.parametrize(
    "content",
    [".".join("a" * 100_000) + " = 1", "\n" * 300_000, "a = " + "[" * 200_000, "known = " + "9" * 200_000],
    ids=["a key of many parts", "large", "deep", "a number without end"],
)
def test_a_hostile_baseline_is_one_sentence_at_once(content: str, tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text(content)
    started = time.monotonic()
    answer = specfuzz("replay", NOTATION, "--baseline", file)
    assert answer.status == 2 and is_one_sentence(answer.err), answer
    assert time.monotonic() - started < 10  # it took minutes, and gigabytes


@pytest.mark.parametrize("verb", ["fuzz", "mutants", "shrink"])
@pytest.mark.parametrize("place", ["a loop", "a dangling link", "taken", "a file", "owner"])
def test_a_place_that_can_not_be_written_is_said_before_anything_runs(verb: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("precious")
    (tmp_path / "a loop").symlink_to("a loop")
    (tmp_path / "a dangling link").symlink_to("/proc/nowhere")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "regressions").write_text("precious")
    (tmp_path / "owner" / "regressions").mkdir(parents=True)
    (tmp_path / "owner" / "regressions" / "scheduler").write_text("precious")
    asked = {
        "fuzz": ["fuzz", "--max-examples", "1", "--corpus", tmp_path / place],
        "mutants": ["mutants", "--corpus", tmp_path / place],
        "shrink": ["shrink", NOTATION, "--out", tmp_path / place / "regressions" / "scheduler" / "small.jsonl"],
    }[verb]
    answer = specfuzz(*asked)
    assert (answer.status, answer.out) == (2, "") and is_one_sentence(answer.err), answer
    assert "can't be written" in answer.err
