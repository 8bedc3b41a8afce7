"""The options: what they do is shown in test_suites; here, what is wrong with them, and what a session pays for us."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import specfuzz.state_machine.profiles
import specfuzz.suite.settings  # noqa: F401  both before pytester notes what is imported: it forgets whatever comes later

pytest_plugins = ["pytester"]


def test_pytest_finds_the_plugin() -> None:
    """If this fails, the environment is older than `pyproject.toml`: `./dev setup`."""
    assert "specfuzz.pytest_plugin" in {entry.value for entry in entry_points(group="pytest11")}


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("seed", "abc", "`--specfuzz-seed`='abc' is no number from 0 to 4294967295."),
        ("seed", "-1", "`--specfuzz-seed`='-1' is no number from 0 to 4294967295."),
        ("seed", "4294967296", "`--specfuzz-seed`='4294967296' is no number from 0 to 4294967295."),
        ("max-examples", "0", "`--specfuzz-max-examples`='0' is no number from 1 to 1000000000."),
        ("max-examples", "1e9", "`--specfuzz-max-examples`='1e9' is no number from 1 to 1000000000."),
        ("profile", "nihgtly", "there is no profile `nihgtly`. Did you mean `nightly`?"),
        ("baseline", "nowhere.toml", "the baseline `*nowhere.toml` can't be read: No such file or directory."),
        ("baseline", "test_one.py", "the baseline `*test_one.py` is not TOML: *"),
        ("corpus", "test_one.py", "failures can't be kept in `*test_one.py`: `*test_one.py` is not a folder."),
        ("corpus", "", "`--specfuzz-corpus` names no folder."),
    ],
)
def test_a_bad_value_is_one_sentence(pytester: pytest.Pytester, option: str, value: str, sentence: str) -> None:
    pytester.makepyfile(test_one="def test_one(): pass")
    found = pytester.runpytest_inprocess(f"--specfuzz-{option}={value}")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([f"ERROR: {sentence.replace('[', '[[]')}"])
    assert "Traceback" not in found.stderr.str() and len([line for line in found.stderr.lines if line]) == 1


def test_a_session_without_anything_of_ours_is_left_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_one="""
        import sys

        def test_one():
            heavy = {"torch", "hypothesis.stateful", "msgspec", "rich", "click", "specfuzz.systems", "specfuzz.core"}
            assert not heavy & set(sys.modules)
        """
    )
    found = pytester.runpytest_subprocess("-W", "error")
    found.assert_outcomes(passed=1)
    assert "specfuzz =" not in found.stdout.str() and not Path(pytester.path / ".specfuzz").exists()


def test_the_plugin_works_without_xdist(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_one="""
        import specfuzz

        def test_one():
            specfuzz.run("reference", "submit(a,2,2) prefill(a) prepare").must_hold()
        """
    )
    found = pytester.runpytest_subprocess("-p", "no:xdist", "-W", "error")
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(["*= specfuzz =*", "seed *: 1 test, 3 events"])


def test_importing_the_plugin_imports_next_to_nothing() -> None:
    probe = (
        "import sys, pytest\nbefore = set(sys.modules)\nimport specfuzz.pytest_plugin\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['specfuzz']"
