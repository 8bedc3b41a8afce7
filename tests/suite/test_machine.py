"""What `machine` accepts, how its plan becomes configurations, and what the package exports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import specfuzz
from specfuzz.core.config import EngineConfig
from specfuzz.errors import ConfigError, UnknownName, UsageError
from specfuzz.state_machine import PROFILES
from specfuzz.suite.machine import machine
from specfuzz.suite.settings import Settings
from specfuzz.suite.totals import Totals

PACKAGE = Path(specfuzz.__file__).parent


def test_an_engine_config_is_run_alone() -> None:
    assert machine(config=EngineConfig(page_size=4)).plan.configs() == (EngineConfig(page_size=4),)


def test_a_dict_fixes_its_fields_and_the_others_vary() -> None:
    configs = machine(config={"page_size": 16, "spec_steps": 2}).plan.configs()
    assert {config.page_size for config in configs} == {16} and len(configs) > 3
    assert {config.spec_steps for config in configs if config.speculative} == {2}
    assert {config.overlap for config in configs} == {True, False}


def test_without_a_configuration_everything_varies() -> None:
    assert {config.page_size for config in machine().plan.configs()} == {1, 4, 16, 64}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"config": {"page_sise": 4}}, ConfigError, "no field `page_sise`; fields: algorithm"),
        ({"config": {"overlap": 1}}, ConfigError, "`overlap`=1 is not true or false"),
        ({"config": {"page_size": "4"}}, ConfigError, "`page_size`='4' is not an integer"),
        ({"config": [4]}, ConfigError, "`config` is a `list`"),
        ({"profile": "night"}, UnknownName, "Did you mean `nightly`"),
        ({"profile": 100}, UsageError, "`profile`=100 is no profile"),
        ({"oracles": "ledger-in-order"}, UsageError, "give a list of names"),
        ({"system": 3}, UsageError, "`system` is a `int`, which is no system"),
        ({"system": None}, UsageError, "`system` is a `NoneType`, which is no system"),
    ],
)
def test_wrong_use_is_one_sentence(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        machine(**arguments)
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_the_session_overrides_the_machine_and_the_budget_overrides_both(tmp_path: Path) -> None:
    ci, nightly = PROFILES["ci"], PROFILES["nightly"]
    assert Settings(corpus=tmp_path).profile_for(None) == PROFILES["dev"]
    assert Settings(corpus=tmp_path).profile_for(ci) == ci
    assert Settings(corpus=tmp_path, profile=nightly).profile_for(ci) == nightly
    short = Settings(corpus=tmp_path, profile=nightly, max_examples=5).profile_for(ci)
    assert (short.name, short.max_examples, short.steps) == ("nightly", 5, nightly.steps)


def test_totals_of_processes_add_up() -> None:
    mine, theirs = Totals(tests=1, events=5), Totals(tests=2, examples=7, violations=["x"])
    mine.count({"a": 1, "b": 0})
    theirs.count({"b": 3, "c": 0})
    mine.add(theirs.plain())
    assert (mine.tests, mine.events, mine.examples, mine.violations) == (3, 5, 7, ["x"])
    assert mine.applied == {"a": 1, "b": 3, "c": 0} and mine.not_exercised == ("c",)


# ----------------------------------------------------------------------------------------------------- what is exported
def test_the_public_names_are_few_sorted_and_there() -> None:
    assert len(specfuzz.__all__) <= 15 and specfuzz.__all__ == sorted(specfuzz.__all__)
    assert all(getattr(specfuzz, name) is not None for name in specfuzz.__all__)
    assert set(specfuzz.__all__) <= set(dir(specfuzz))


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text("utf-8"))
    told = {name.asname for node in stub.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert told == set(specfuzz.__all__)


def test_every_public_name_has_a_docstring() -> None:
    assert not [name for name in specfuzz.__all__ if not (getattr(specfuzz, name).__doc__ or "").strip()]


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute `machin`"):
        specfuzz.machin  # noqa: B018  the access is what is tested


def test_a_plan_is_made_without_any_engine() -> None:
    """Collecting a suite must not cost what running it costs."""
    probe = "import sys, specfuzz; specfuzz.machine('sglang'); print(sorted({'torch', 'triton'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
