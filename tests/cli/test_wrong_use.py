"""Wrong use and unreadable input: one clear sentence on stderr, exit status 2, one JSON object with --json."""

from __future__ import annotations

import json
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
