"""stdout that can't be written is one sentence and a status; stderr that can't be written ends nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import is_one_sentence

ROOT = Path(__file__).parents[2]


def shell(line: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `specfuzz` is this one; the status is that of its first command."""
    prelude = f'specfuzz() {{ PYTHONPATH={ROOT} {sys.executable} -m specfuzz "$@"; }}; set -o pipefail\n'
    return subprocess.run(
        ["bash", "-c", prelude + line], capture_output=True, text=True, check=False, cwd=folder, timeout=120
    )


@pytest.mark.parametrize("arguments", ["oracles", "oracles --json", "--help", "fuzz --help", "--version"])
@pytest.mark.parametrize(("where", "because"), [(">/dev/full", "No space left on device"), (">&-", "stdout is closed")])
def test_a_stdout_that_can_not_be_written_is_one_sentence(arguments: str, where: str, because: str) -> None:
    done = shell(f"specfuzz {arguments} {where}")
    assert done.returncode == 2 and is_one_sentence(done.stderr) and because in done.stderr


@pytest.mark.parametrize("arguments", ["oracles", "oracles --json", "--help", "nope --json"])
def test_a_reader_that_has_gone_needs_no_words(arguments: str, tmp_path: Path) -> None:
    done = shell(
        f"specfuzz {arguments} 2>err | true; status=${{PIPESTATUS[0]}}; grep -c Errno err; exit $status", tmp_path
    )
    assert done.returncode == 141 and done.stdout == "0\n", done


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", "2>/dev/full --jobs 2"])
def test_progress_that_nobody_reads_ends_no_campaign(where: str, tmp_path: Path) -> None:
    done = shell(f"specfuzz fuzz --seed 1 --max-examples 3 --page-size 1 --json {where}", tmp_path)
    assert done.returncode == 0 and done.stdout.startswith('{"verb": "fuzz"') and done.stdout.count("\n") == 1


def test_a_machine_that_has_no_more_to_give_is_one_sentence(tmp_path: Path) -> None:
    done = shell("ulimit -n 14; specfuzz fuzz --seed 1 --max-examples 2 --page-size 1 --jobs 2", tmp_path)
    assert done.returncode == 3 and is_one_sentence(done.stderr) and "Too many open files" in done.stderr
