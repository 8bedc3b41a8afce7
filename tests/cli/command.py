"""Runs the command line: in this process where only the answer matters, in a process of its own where more does."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specfuzz.cli import main


@dataclass(frozen=True, slots=True)
class Answer:
    """One call's exit status and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one object on stdout; fails if there is anything else."""
        assert self.out.count("\n") == 1, self.out
        data = json.loads(self.out)
        assert isinstance(data, dict)
        return data


def specfuzz(*arguments: str | int | Path) -> Answer:
    """`specfuzz ARGUMENTS` in this process, without a terminal: torch is imported once, not once per test."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(argument) for argument in arguments])
    return Answer(status, out.getvalue(), err.getvalue())


def process(*arguments: str | Path, cwd: Path | None = None, timeout: float = 120, **environment: str) -> Answer:
    """The same in a process of its own."""
    root = Path(__file__).resolve().parents[2]
    env = {**os.environ, "PYTHONPATH": str(root), **environment}
    done = subprocess.run(
        [sys.executable, "-m", "specfuzz", *map(str, arguments)], cwd=cwd, env=env, capture_output=True, text=True,
        timeout=timeout, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return Answer(done.returncode, done.stdout, done.stderr)


def is_one_sentence(text: str) -> bool:
    """Whether stderr is a single `specfuzz: …` line without a traceback."""
    return text.startswith("specfuzz: ") and text.count("\n") == 1 and "Traceback" not in text
