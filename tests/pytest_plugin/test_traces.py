"""Corpus files as tests: which files are taken, what they must come to, and what a broken one says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CORPUS = Path(__file__).parents[2] / "corpus" / "regressions"
ORACLE = "clocks-tick-once"


@pytest.fixture
def folder(pytester: pytest.Pytester) -> Path:
    """A corpus of one regression of a planted bug, beside files of other people."""
    pytester.makeini("[pytest]")
    place = pytester.path / "corpus" / "regressions" / "scheduler"
    place.mkdir(parents=True)
    shutil.copy(regression(), place)
    (pytester.path / "corpus" / "theirs.jsonl").write_text('{"text": "specfuzz-trace"}\n{"text": "no header"}\n')
    (pytester.path / "corpus" / "empty.jsonl").write_text("")
    (pytester.path / "corpus" / "binary.jsonl").write_bytes(b"\x00\xff{")
    return place


def regression() -> Path:
    [found] = (CORPUS / "scheduler").glob(f"{ORACLE}-*.jsonl")
    return found


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", *arguments)


@pytest.mark.slow
def test_a_planted_bug_is_still_found_and_its_clean_system_holds(pytester: pytest.Pytester, folder: Path) -> None:
    found = run(pytester, "-v", "corpus")
    found.assert_outcomes(passed=1)  # and nothing of what lies beside it
    found.stdout.fnmatch_lines([f"corpus/regressions/scheduler/{ORACLE}-*.jsonl::replay PASSED*"])
    found.stdout.fnmatch_lines(["*= specfuzz =*", "seed *: 1 corpus trace, 2 events", "0 violations"])


@pytest.mark.slow
def test_every_trace_of_our_own_corpus_passes_on_two_workers(pytester: pytest.Pytester) -> None:
    files = len(list(CORPUS.rglob("*.jsonl")))
    outcomes = run(pytester, "-n", "2", f"--rootdir={CORPUS.parent}", str(CORPUS)).parseoutcomes()
    assert set(outcomes) <= {"passed", "skipped"}  # where a real engine isn't installed, its traces are skipped
    assert outcomes["passed"] > 0 and sum(outcomes.values()) == files


def rewritten(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


@pytest.mark.slow
def test_what_a_header_expects_must_come_about(pytester: pytest.Pytester, folder: Path) -> None:
    """A bug that was planted and isn't found, one that was fixed and is back, one that holds and has no bug."""
    [planted] = folder.glob("*.jsonl")
    for name in ("gone", "back", "held", "unknown"):
        shutil.copy(planted, folder / f"{name}.jsonl")
    rewritten(folder / "gone.jsonl", "mutated:clock-ticks-twice", "mutated:reserve-1x")
    rewritten(folder / "back.jsonl", "mutated:clock-ticks-twice", "rerun:mutated:clock-ticks-twice")
    rewritten(folder / "held.jsonl", "mutated:clock-ticks-twice", "rerun:reference")
    rewritten(folder / "unknown.jsonl", "mutated:clock-ticks-twice", "mutated:clock-ticks-thrice")
    planted.unlink()
    found = run(pytester, "--junitxml", "out.xml")
    found.assert_outcomes(failed=3, passed=1)
    found.stdout.fnmatch_lines(
        [
            f"VIOLATED {ORACLE} [[]*]",
            f"NOT AS EXPECTED `*gone.jsonl` on mutated:reserve-1x: expected {ORACLE}/*, got holds",
            "`*unknown.jsonl`: there is no mutant `clock-ticks-thrice`. Did you mean `clock-ticks-twice`*",
        ]
    )
    assert 'failures="3"' in (pytester.path / "out.xml").read_text("utf-8")


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda data: data[:-20], "is truncated"),
    "version": (lambda data: data.replace(b'"version":1', b'"version":99'), "has version 99 of the trace format"),
    "config": (lambda data: data.replace(b'"page_size":1', b'"page_size":3'), "`page_size`=3 is not one of"),
    "event": (lambda data: data.replace(b'"do":"submit"', b'"do":"../../etc"'), "line 2"),
    "bytes": (lambda data: data + b"\x80\x00\x1b[31m", "is not UTF-8 text"),
}


def test_a_broken_file_is_one_sentence(pytester: pytest.Pytester, folder: Path) -> None:
    [file] = folder.glob("*.jsonl")
    for name, (damage, _words) in DAMAGES.items():
        (folder / f"{name}.jsonl").write_bytes(damage(file.read_bytes()))
    file.unlink()
    found = run(pytester, "corpus", "-rN")
    found.assert_outcomes(errors=len(DAMAGES))
    said = found.stdout.str().partition("= ERRORS =")[2].partition("!!!! Interrupted")[0]
    sentences = [line for line in said.splitlines() if line.startswith("`")]
    assert len(sentences) == len(DAMAGES)
    assert len([line for line in said.splitlines() if line.strip("=_!")]) == 2 * len(DAMAGES)  # and each file's name
    for name, (_damage, words) in DAMAGES.items():
        assert any(f"{name}.jsonl`" in sentence and words in sentence for sentence in sentences), name


@pytest.mark.slow
def test_what_machines_keep_is_replayed_by_them_and_taken_only_when_named(
    pytester: pytest.Pytester, folder: Path
) -> None:
    kept = pytester.path / "failures" / "tests" / "TestMine-00000000" / "regressions" / "scheduler"
    kept.mkdir(parents=True)
    [file] = folder.glob("*.jsonl")
    moved = Path(shutil.move(file, kept))
    assert run(pytester, "--specfuzz-corpus", "failures").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    run(pytester, "--specfuzz-corpus", "failures", str(moved)).assert_outcomes(passed=1)
