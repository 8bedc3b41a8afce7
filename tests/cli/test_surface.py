"""What the command line offers: help, version, listings, and how it behaves in a pipe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specfuzz import __version__
from specfuzz.cli.main import VERBS
from tests.cli.command import process, specfuzz

HEAVY = {"torch", "triton", "hypothesis", "specfuzz.reference", "specfuzz.systems", "specfuzz.oracles"}


def test_help_names_every_verb_and_what_the_exit_statuses_mean() -> None:
    answer = specfuzz("--help")
    assert answer.status == 0 and not answer.err
    assert all(f"\n  {verb} " in answer.out for verb in VERBS)
    assert "Exit status" in answer.out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str) -> None:
    answer = specfuzz(verb, "--help")
    assert answer.status == 0 and answer.out.startswith(f"Usage: specfuzz {verb}") and "--json" in answer.out


def test_version() -> None:
    assert specfuzz("--version").out == f"specfuzz {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["fuzz", "--help"], ["fuzz", "--nope"], ["nope"]])
def test_help_and_wrong_use_import_nothing_heavy(arguments: list[str]) -> None:
    probe = (
        "import sys\nfrom specfuzz.cli import main\n"
        f"main({arguments!r})\nprint(sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize("verb", ["oracles", "algorithms", "systems"])
def test_listings_have_names_and_the_common_keys(verb: str) -> None:
    data = specfuzz(verb, "--json").json
    assert {"verb", "version", "seed", "seconds", "verdict", "violations"} <= set(data)
    assert data[verb] and all(entry["name"] for entry in data[verb])


def test_systems_say_what_is_missing_and_how_to_get_it() -> None:
    listed = {system["name"]: system for system in specfuzz("systems", "--json").json["systems"]}
    assert {"reference", "mutated", "rerun", "lockstep", "sglang"} <= set(listed)
    assert all({"available", "version", "why_not", "install"} <= set(system) for system in listed.values())
    assert listed["reference"]["available"] is True


def test_a_named_oracle_is_declared_in_full() -> None:
    name = specfuzz("oracles", "--json").json["oracles"][0]["name"]
    text = specfuzz("oracles", name).out
    assert text.startswith(f"{name}\n") and all(field in text for field in ("formula", "owner", "clock", "source"))


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m specfuzz oracles; echo status $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({command}) | head -c 1 >/dev/null"], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {}, {"PYTHONIOENCODING": "ascii"}])
def test_output_that_is_no_terminal_is_plain(environment: dict[str, str]) -> None:
    answer = process("oracles", **environment)
    assert answer.status == 0 and "\x1b" not in answer.out
