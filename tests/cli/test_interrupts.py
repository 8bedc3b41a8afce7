"""Ctrl-C and SIGTERM lose nothing: what was found is stored, reported, and the status says what happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from specfuzz.trace import load
from tests.cli.command import specfuzz
from tests.cli.systems_that_fail import interrupted_at, registered

ONE = ("--algorithm", "EAGLE", "--overlap", "on", "--page-size", "1", "--topk", "1", "--config", "num_pages=128")
FUZZ = ("fuzz", "--system", "failing", "--seed", "1", "--max-examples", "200", *ONE)
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_campaign_reports_what_it_found(
    number: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered(monkeypatch, interrupted_at(1, number))
    answer = specfuzz(*FUZZ, "--json")
    data = answer.json
    assert (answer.status, data["verdict"], data["interrupted"]) == (status, "violated", True)
    (entry,) = data["violations"]
    assert entry["oracle"] == "engine-fault" and len(load(entry["trace"]).steps) == entry["events"]


def test_it_reports_to_people_too(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, interrupted_at(1, signal.SIGINT))
    answer = specfuzz(*FUZZ)
    assert answer.status == 130 and "VIOLATED engine-fault" in answer.out
    assert "interrupted: this is what was found until then" in answer.out


def events_of_the_finding(monkeypatch: pytest.MonkeyPatch, crash: int, *signals: int) -> int:
    registered(monkeypatch, interrupted_at(crash, *signals))
    (entry,) = specfuzz(*FUZZ, "--json").json["violations"]
    assert len(load(entry["trace"]).steps) == entry["events"]
    events: int = entry["events"]
    return events


def test_a_finding_that_is_being_shrunk_is_stored_as_far_as_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = specfuzz(*FUZZ[:1], *FUZZ[3:5], "--max-examples", "1", "--json").json["configs"]
    found = events_of_the_finding(monkeypatch, 1, signal.SIGTERM)
    halfway = events_of_the_finding(monkeypatch, configs + 4, signal.SIGTERM)
    assert halfway < found
    assert events_of_the_finding(monkeypatch, 10_000) <= halfway


def test_a_second_signal_ends_it_at_once_and_loses_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, interrupted_at(2, signal.SIGINT, signal.SIGINT))
    answer = specfuzz(*FUZZ, "--json")
    assert answer.status == 130 and [e["oracle"] for e in answer.json["violations"]] == ["engine-fault"]


def test_without_a_finding_an_interrupted_campaign_cannot_say(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, interrupted_at(1, signal.SIGINT, signal.SIGINT))
    answer = specfuzz(*FUZZ, "--json")
    assert (answer.status, answer.json["verdict"], answer.json["violations"]) == (130, "unknown", [])


def test_an_interrupted_shrink_stores_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    longer = "submit(b,4,4) submit(a,3,3) prefill(a) settle idle retract(a)"
    registered(monkeypatch, interrupted_at(3, signal.SIGTERM))
    answer = specfuzz("shrink", longer, "--system", "failing", "--out", "small.jsonl", "--json")
    data = answer.json
    assert (answer.status, data["minimal"], data["trace"]) == (143, False, "small.jsonl")
    assert len(load("small.jsonl").steps) == data["after"] <= data["before"]


def test_an_interrupted_repetition_reports_the_replays_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, interrupted_at(3, signal.SIGINT))
    line = "submit(a,3,3) prefill(a) settle retract(a)"
    answer = specfuzz("replay", line, "--system", "failing", "--repeat", "1000", "--json")
    assert (answer.status, answer.json["repeats"], answer.json["verdict"]) == (130, 3, "violated")


def interrupted_process(*arguments: str, after: str, number: int) -> tuple[int, dict[str, object]]:
    """Start it, wait until stderr has a line with `after`, send the signal; its status and its one object."""
    with subprocess.Popen(
        [sys.executable, "-m", "specfuzz", *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:  # fmt: skip
        try:
            assert child.stderr is not None
            for line in child.stderr:
                if after in line:
                    child.send_signal(number)
                    break
            out, _err = child.communicate(timeout=120)
        finally:
            child.kill()  # it has ended, unless we were interrupted or it was not
    assert out.count("\n") == 1, out
    return child.returncode, json.loads(out)


@pytest.mark.slow
def test_interrupted_mutants_report_the_kills_so_far() -> None:
    status, data = interrupted_process("mutants", "--seeds", "1", after="killed by", number=signal.SIGINT)
    assert (status, data["verdict"], data["interrupted"]) == (130, "unknown", True)
    assert isinstance(data["mutants"], list) and data["killed"] == data["total"] == len(data["mutants"]) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_jobs_are_told_and_their_findings_joined(jobs: str) -> None:
    status, data = interrupted_process(
        "fuzz", "--system", "mutated:late-result-for-finished", "--seed", "1", "--max-examples", "1000000",
        "--jobs", jobs, after="dead-rows-are-inert", number=signal.SIGTERM,
    )  # fmt: skip
    assert status == 143 and isinstance(data["violations"], list)
    assert "dead-rows-are-inert" in [entry["oracle"] for entry in data["violations"]]
