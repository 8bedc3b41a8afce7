"""Imports go down only, and a new module can't forget to choose its floor."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.repo.tree import ROOT, top_level

# Who may see an engine, for each contract that names its sources one by one.
MAY_SEE_AN_ENGINE = {
    "blind-judges": {
        "campaign", "cli", "conformance", "errors", "gpu", "mutants", "pytest_plugin", "reference", "suite", "systems",
    },
    "one-door-to-sglang": {"systems"},
    "one-door-to-vllm": {"systems"},
}  # fmt: skip


def contracts() -> dict[str, dict[str, Any]]:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return {contract["id"]: contract for contract in listed}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_floor_holds() -> None:
    answer = lint_imports(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("name", MAY_SEE_AN_ENGINE)
def test_every_module_is_named_in_the_contracts_that_list_modules(name: str) -> None:
    named = {module.removeprefix("specfuzz.") for module in contracts()[name]["source_modules"]}
    assert named == top_level() - MAY_SEE_AN_ENGINE[name]


def test_every_module_has_a_floor() -> None:
    floors = {module for layer in contracts()["floors"]["layers"] for module in re.findall(r"\w+", layer)}
    assert top_level() <= floors


def test_only_its_own_adapter_names_a_real_engine() -> None:
    """The contract sees modules outside `systems`; its other adapters are looked at here."""
    offenders = [
        f"{path.relative_to(ROOT)} imports {engine}"
        for engine in ("sglang", "vllm")
        for path in (ROOT / "specfuzz").rglob("*.py")
        if re.search(rf"^\s*(?:import|from) {engine}\b", path.read_text("utf-8"), re.MULTILINE)
        and path.relative_to(ROOT / "specfuzz").parts[:2] != ("systems", engine)
    ]
    assert not offenders
