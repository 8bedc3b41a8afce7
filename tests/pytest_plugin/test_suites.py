"""A suite of ten lines, run by pytest in a folder of its own: what it finds, shows, replays and counts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

BUG, ORACLE = "mutated:reserve-1x", "reserve-covers-two-rounds"
NODE = "test_mine.py::TestMine::test_holds"
#: The Python blocks of the page that users read, so that what it shows is what is tested.
SUITE, CONFTEST, _SCHEDULER, OWN_ORACLE = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "pytest.md").read_text("utf-8"), re.DOTALL
)
#: Few enough for a quick run, many enough for the planted bug.
SHORT = ("--specfuzz-seed", "1", "--specfuzz-max-examples", "20")


def suite(pytester: pytest.Pytester, system: str) -> Path:
    pytester.makeini("[pytest]")  # so that this folder is the root wherever the temporary folder lies
    return pytester.makepyfile(test_mine=SUITE.replace(BUG, system))


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """In a process of its own: ours has imported and registered too much already. A warning would be an error."""
    return pytester.runpytest_subprocess("-W", "error", "-p", "no:cacheprovider", *SHORT, *arguments)


def stored(pytester: pytest.Pytester) -> list[Path]:
    return sorted(pytester.path.glob(".specfuzz/tests/TestMine-*/regressions/*/*.jsonl"))


@pytest.mark.slow
def test_a_planted_bug_is_found_replayed_first_and_passes_once_it_is_fixed(pytester: pytest.Pytester) -> None:
    suite(pytester, BUG)
    found = run(pytester, "--junitxml", "found.xml")
    found.assert_outcomes(failed=1, passed=1)
    found.stdout.fnmatch_lines(
        [
            f"VIOLATED {ORACLE} [[]host, scheduler, *]",
            "formula *", "values *", "fact *", "but *", "3 events *submit(a,*) prefill(a) prepare",
            "request a *host*relay*device*", "2 prepare *>*<*",
            "replay *specfuzz replay .specfuzz/tests/TestMine-*.jsonl",
            f"replay *specfuzz replay --system {BUG} *",
            f"replay *pytest {NODE}",
            "source *",
            "found *in example * of seed 1; stored: the next run replays it first",
        ]
    )  # fmt: skip
    found.stdout.fnmatch_lines(["*= specfuzz =*", "seed 1: 2 tests, * examples, * events", "1 violation:"])
    [file] = stored(pytester)

    again = run(pytester)
    again.assert_outcomes(failed=1, passed=1)
    again.stdout.fnmatch_lines([f"VIOLATED {ORACLE} *", "found *it was replayed first, and no new example was*"])
    again.stdout.fnmatch_lines(["seed 1: 2 tests, 3 events, 1 stored failure replayed"])

    suite(pytester, "reference")
    fixed = run(pytester)
    fixed.assert_outcomes(passed=2)
    fixed.stdout.fnmatch_lines(["seed 1: 2 tests, 20 examples, * events, 1 stored failure replayed", "0 violations"])
    assert stored(pytester) == [file]

    [case] = [case for case in junit(pytester.path / "found.xml") if case.get("name") == "test_holds"]
    [failure] = case.findall("failure")
    assert f"VIOLATED {ORACLE}" in str(failure.get("message")) and "request a" in str(failure.text)


def junit(file: Path) -> list[ElementTree.Element]:
    root = ElementTree.parse(file).getroot()
    [run] = root.iter("testsuite")
    cases = list(run.iter("testcase"))
    assert int(run.get("tests", "")) == len(cases)
    assert int(run.get("failures", "")) == sum(len(case.findall("failure")) for case in cases)
    return cases


@pytest.mark.slow
def test_workers_share_the_seed_and_send_their_counts_home(pytester: pytest.Pytester) -> None:
    suite(pytester, BUG)
    pytester.makepyfile(
        test_other="import specfuzz\n\nclass TestOther(specfuzz.machine(config=specfuzz.EngineConfig())):\n    pass\n"
    )
    found = pytester.runpytest_subprocess("-n", "2", "--specfuzz-max-examples", "20")
    found.assert_outcomes(failed=1, passed=2)
    found.stdout.fnmatch_lines(["*= specfuzz =*", "seed *: 3 tests, * examples, * events", "1 violation:"])
    text = found.stdout.str()
    seed = text.partition("\nseed ")[2].partition(":")[0]
    assert f"of seed {seed}; stored" in text and len(stored(pytester)) == 1


@pytest.mark.slow
def test_an_own_oracle_judges_beside_ours(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")
    strict = OWN_ORACLE.replace("64", "1")
    machine = "specfuzz.machine(config=specfuzz.EngineConfig(), oracles=['answers-are-short'])"
    pytester.makepyfile(test_own=f"import specfuzz\n{strict}\n\nclass TestOwn({machine}):\n    pass\n")
    found = run(pytester)
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(
        [
            "VIOLATED answers-are-short [[]host, result_processor, *]",
            "source *our product's contract",
            "1 oracle applied; *",
        ]
    )


@pytest.mark.slow
def test_the_database_of_the_loaded_hypothesis_profile_is_used(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")  # the other profile would ask GitHub
    suite(pytester, BUG)
    pytester.makeconftest(CONFTEST.replace(".hypothesis/examples", "examples"))
    run(pytester, "-k", "TestMine").assert_outcomes(failed=1, deselected=1)
    [file] = stored(pytester)
    kept = [entry.read_bytes() for entry in (pytester.path / "examples").rglob("*") if entry.is_file()]
    assert file.read_bytes() in kept


@pytest.mark.slow
def test_a_known_finding_is_an_expected_failure(pytester: pytest.Pytester) -> None:
    suite(pytester, BUG)
    known = [
        f'[[known]]\nidentity = "{ORACLE}/scheduler/{phase}"\nsystem = "{BUG}"\nreason = "planted"\n'
        for phase in ("extending", "prepared")
    ]
    pytester.path.joinpath("known.toml").write_text("\n".join(known))
    found = run(pytester, "--specfuzz-baseline", "known.toml", "-rx")
    found.assert_outcomes(xfailed=1, passed=1)
    found.stdout.fnmatch_lines(["0 violations", f"known: {ORACLE}/scheduler/* test_mine.py::TestMine:*"])
    found.stdout.fnmatch_lines([f"XFAIL {NODE} - known: {ORACLE}/scheduler/*: planted*"])
    assert not stored(pytester)


@pytest.mark.slow
def test_wrong_use_inside_of_a_suite_is_one_sentence(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")
    pytester.makepyfile(
        test_wrong="""
        import specfuzz

        class TestSystem(specfuzz.machine("referenze")):
            pass

        class TestOracle(specfuzz.machine(oracles=["ledger-in-ordre"])):
            pass

        def test_field():
            specfuzz.run("reference", "idle", {"pagesize": 4})
        """
    )
    found = run(pytester, "-rf")
    found.assert_outcomes(failed=3)
    found.stdout.fnmatch_lines(
        [
            "there is no system `referenze`. Did you mean `reference`*",
            "there is no oracle `ledger-in-ordre`. Did you mean `ledger-in-order`*",
            "E *ConfigError: the engine configuration has no field `pagesize`; fields: algorithm*",
        ]
    )
    assert "Traceback" not in found.stdout.str()
