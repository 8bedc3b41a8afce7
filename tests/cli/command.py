"""Runs the real command in a process of its own: what a user sees is what is tested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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


def specfuzz(*arguments: str | Path, cwd: Path | None = None, timeout: float = 120, **environment: str) -> Answer:
    """`specfuzz ARGUMENTS`, without a terminal."""
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
