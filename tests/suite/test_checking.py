"""A machine's run: stored failures first, then new examples; what fails, what is known, what can't be said."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    GitHubArtifactDatabase,
    InMemoryExampleDatabase,
    MultiplexedDatabase,
    ReadOnlyDatabase,
)

from specfuzz.campaign.baseline import load_baseline
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Retract
from specfuzz.core.receipt import Receipt
from specfuzz.errors import ConfigError, UnknownName
from specfuzz.suite.checking import MachineReport, check
from specfuzz.suite.machine import machine
from specfuzz.suite.settings import Settings
from specfuzz.systems.reference import ReferenceSystem
from specfuzz.trace import load

BUG = "mutated:reserve-1x"
ORACLE = "reserve-covers-two-rounds"
TEST = "test_mine.py::TestMine"
#: One configuration, so that a run is short; the bug shows in its first examples.
ONE = EngineConfig()


def checked(tmp_path: Path, system: Any = BUG, *, config: Any = ONE, oracles: Any = None, **more: Any) -> MachineReport:
    database = more.pop("database", None)
    settings = Settings(corpus=tmp_path / "corpus", seed=1, **{"max_examples": 8, **more})
    plan = machine(system, config, oracles).plan
    return check(plan, settings, test=TEST, again=f"pytest {TEST}::test_holds", database=database)


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "corpus").rglob("*.jsonl"))


# ------------------------------------------------------------------------------------------------ the life of a failure
def test_a_failure_is_reported_shrunk_with_clocks_and_ways_to_replay(tmp_path: Path) -> None:
    [failure] = checked(tmp_path).broken
    assert failure.identity.oracle == ORACLE and failure.path in files(tmp_path)
    lines = failure.text.splitlines()
    assert lines[0].startswith(f"VIOLATED {ORACLE} [host, scheduler, ")
    parts = ("formula ", "values ", "fact ", "but ", "3 events ", "request a ", "replay ", "source ", "found ")
    places = [next(at for at, line in enumerate(lines) if line.startswith(part)) for part in parts]
    assert places == sorted(places)
    assert ">first bad cell<" in failure.text and f"pytest {TEST}::test_holds" in failure.text
    assert f"specfuzz replay --system {BUG} " in failure.text


def test_what_is_stored_is_the_shrunk_trace_of_the_test(tmp_path: Path) -> None:
    checked(tmp_path)
    [file] = files(tmp_path)
    trace = load(file)
    assert len(trace.steps) == 3 and trace.system == BUG and TEST in trace.note
    assert file.is_relative_to(tmp_path / "corpus" / "tests") and file.parts[-4].startswith("TestMine-")


def test_a_stored_failure_is_replayed_before_anything_is_generated(tmp_path: Path) -> None:
    first = checked(tmp_path)
    again = checked(tmp_path)
    assert first.examples > 0 and first.replayed == 0
    assert (again.examples, again.events, again.replayed) == (0, 0, 1)
    assert [failure.identity for failure in again.broken] == [failure.identity for failure in first.broken]
    assert "replayed first" in again.broken[0].text


def test_a_fixed_bug_passes_and_its_trace_stays(tmp_path: Path) -> None:
    checked(tmp_path)
    before = [file.read_bytes() for file in files(tmp_path)]
    fixed = checked(tmp_path, "reference")
    assert not fixed.failures and fixed.replayed == 1 and fixed.examples == 8
    assert [file.read_bytes() for file in files(tmp_path)] == before


def test_another_test_does_not_replay_it(tmp_path: Path) -> None:
    checked(tmp_path)
    plan, settings = machine(BUG, ONE).plan, Settings(corpus=tmp_path / "corpus", seed=1, max_examples=8)
    other = check(plan, settings, test="test_other.py::TestMine", again="")
    assert other.replayed == 0 and other.examples > 0


def test_a_stored_file_that_is_broken_is_a_problem_and_no_failure(tmp_path: Path) -> None:
    checked(tmp_path)
    [file] = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    fixed = checked(tmp_path, "reference")
    assert not fixed.failures and fixed.replayed == 0
    assert len(fixed.problems) == 1 and file.name in fixed.problems[0] and "truncated" in fixed.problems[0]


def test_an_unwritable_corpus_still_reports_the_failure(tmp_path: Path) -> None:
    (tmp_path / "corpus").write_text("a file is in the way")
    found = checked(tmp_path)
    assert found.broken and found.broken[0].path is None and found.problems
    assert "stored" not in found.broken[0].text


# ------------------------------------------------------------------------------------------------ the example database
def test_the_example_database_replays_a_failure_without_any_file(tmp_path: Path) -> None:
    database = InMemoryExampleDatabase()
    checked(tmp_path / "here", database=database)
    there = checked(tmp_path / "there", database=database)
    assert (there.examples, there.replayed) == (0, 1) and there.broken
    assert files(tmp_path / "there") == [there.broken[0].path]  # from now on it stays here as well


def test_the_example_database_forgets_what_holds(tmp_path: Path) -> None:
    database = InMemoryExampleDatabase()
    checked(tmp_path, database=database)
    checked(tmp_path, "reference", database=database)
    assert not any(database.data.values())


def test_a_failure_is_replayed_from_the_artifact_of_another_machine(tmp_path: Path) -> None:
    """The set-up that Hypothesis documents: CI uploads its directory, a developer reads it through the artifact."""
    directory = tmp_path / "ci" / "examples"
    checked(tmp_path / "ci", database=DirectoryBasedExampleDatabase(directory))
    cache = tmp_path / "artifacts"
    cache.mkdir()
    stamp = datetime.now(UTC).isoformat().replace(":", "_")
    with zipfile.ZipFile(cache / f"{stamp}.zip", "w") as artifact:
        for file in directory.rglob("*"):
            artifact.write(file, file.relative_to(directory))
    shared = ReadOnlyDatabase(GitHubArtifactDatabase("owner", "repository", path=cache))
    local = DirectoryBasedExampleDatabase(tmp_path / "home" / "examples")
    there = checked(tmp_path / "home", database=MultiplexedDatabase(local, shared))
    assert (there.examples, there.replayed) == (0, 1) and there.broken
    held = checked(tmp_path / "home", "reference", database=MultiplexedDatabase(local, shared))
    assert not held.failures  # although the artifact can't forget


def test_garbage_in_the_example_database_is_dropped(tmp_path: Path) -> None:
    database = InMemoryExampleDatabase()
    database.save(f"specfuzz/{TEST}".encode(), b"\x00 no trace")
    held = checked(tmp_path, "reference", database=database)
    assert not held.failures and not held.problems and not any(database.data.values())


# ------------------------------------------------------------------------------------------------ what can't be said
def test_a_known_finding_is_reported_and_does_not_fail(tmp_path: Path) -> None:
    identity = checked(tmp_path / "first").broken[0].identity
    file = tmp_path / "known.toml"
    file.write_text(f'[[known]]\nidentity = "{identity}"\nsystem = "{BUG}"\nreason = "planted by hand"\n')
    found = checked(tmp_path / "second", baseline=load_baseline(str(file)))
    assert [failure.known for failure in found.failures if failure.identity == identity] == ["planted by hand"]
    assert identity not in {failure.identity for failure in found.broken}


def test_an_oracle_asked_for_by_name_must_have_had_something_to_judge(tmp_path: Path) -> None:
    plain = replace(ONE, algorithm="NONE", radix=False)
    found = checked(tmp_path, "reference", config=plain, oracles=["draft-kv-is-true"])
    assert not found.failures and found.doubt is not None and "`draft-kv-is-true` had nothing to judge" in found.doubt


def test_only_the_oracles_that_were_asked_judge(tmp_path: Path) -> None:
    found = checked(tmp_path, oracles=["clocks-tick-once"])
    assert not found.failures and set(found.applied) == {"clocks-tick-once"}


def test_an_unknown_oracle_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=f"Did you mean `{ORACLE}`"):
        checked(tmp_path, oracles=["reserve-covers-two-round"])


# ------------------------------------------------------------------------------------------------- systems of one's own
class Mine(ReferenceSystem):
    """Whatever somebody may bring; this one happens to be made like the reference."""

    def __init__(self) -> None:
        super().__init__(name=type(self).__name__.lower())


class Clumsy(Mine):
    """Raises what a real scheduler raises."""

    def apply(self, event: Event) -> Receipt:
        if isinstance(event, Retract):
            raise KeyError(event.rid)
        return super().apply(event)


@pytest.mark.parametrize("system", [Clumsy, Clumsy(), lambda: Clumsy()], ids=["class", "object", "callable"])
def test_whatever_a_system_raises_is_a_finding_with_the_trace_so_far(tmp_path: Path, system: Any) -> None:
    found = checked(tmp_path, system, max_examples=60)
    [failure] = found.broken
    assert failure.identity.oracle == "engine-fault" and "keyerror-in-apply" in failure.identity.phase
    assert "KeyError: 'a'" in failure.text and "test_checking.py" in failure.text and "retract(a)" in failure.text
    assert f"pytest {TEST}::test_holds" in failure.text
    assert "specfuzz replay" not in failure.text  # the command line knows no such system
    assert checked(tmp_path, system, max_examples=60).examples == 0


class OnlyPageOne(Mine):
    def capabilities(self, config: EngineConfig) -> Any:
        if config.page_size != 1:
            raise ConfigError(f"`page_size`={config.page_size} is not supported here.")
        return super().capabilities(config)


def test_configurations_that_a_system_refuses_are_left_out_and_counted(tmp_path: Path) -> None:
    found = checked(tmp_path, OnlyPageOne, config={"algorithm": "NONE"}, max_examples=40)
    assert not found.failures and found.examples > 0
    assert found.left_out is not None and "is not supported here" in found.left_out


def test_a_system_that_can_run_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not supported here"):
        checked(tmp_path, OnlyPageOne, config={"page_size": 16})


def test_a_finding_that_does_not_come_about_again_says_so(tmp_path: Path) -> None:
    class Moody(Mine):
        calm = False

        def apply(self, event: Event) -> Receipt:
            if isinstance(event, Retract) and not Moody.calm:
                Moody.calm = True  # for ever
                raise KeyError(event.rid)
            return super().apply(event)

    [failure] = checked(tmp_path, Moody, max_examples=60).broken
    assert "KeyError" in failure.text and "not deterministic" in failure.text


def test_paths_are_shown_from_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [failure] = checked(tmp_path).broken
    assert failure.path is not None
    assert f"specfuzz replay {os.path.relpath(failure.path, tmp_path)}" in failure.text
