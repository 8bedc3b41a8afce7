"""What all tests share: profiles, the markers `cuda` and `engine`, one torch thread.

Nothing heavy is imported here: a bare GPU machine (torch, hypothesis and pytest only) collects `tests/gpu` with it.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, settings

# Before torch is imported: digests and timings must not depend on the number of cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# For the suite's own property tests; the fuzzer's profiles of the same names live in specfuzz.state_machine.
# No deadline: the two workers share two cores, so the time of one example says little.
settings.register_profile("tests-dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("tests-ci", parent=settings.get_profile("tests-dev"), derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("SPECFUZZ_TEST_PROFILE", "tests-ci" if os.environ.get("CI") else "tests-dev"))


@functools.cache
def _why_no_cuda() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "no NVIDIA GPU on this machine"


@functools.cache
def _systems() -> dict[str, dict[str, object]]:
    """What `specfuzz systems --json` says, by name. Asked in a process of its own: it must not import torch here."""
    command = [sys.executable, "-m", "specfuzz", "systems", "--json"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if listed.returncode != 0:
        raise pytest.UsageError(f"`specfuzz systems --json` ended with {listed.returncode}: {listed.stderr[-2000:]}")
    return {system["name"]: system for system in json.loads(listed.stdout)["systems"]}


def _why_no_engine(name: str) -> str | None:
    system = _systems().get(name)
    if system is None:
        return f"`specfuzz systems` knows no `{name}`"
    return None if system["available"] else f"{name}: {system['why_not']} ({system['install']})"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine can't run, with the reason; a required engine is never skipped."""
    required = set(filter(None, os.environ.get("SPECFUZZ_REQUIRE_ENGINES", "").split(",")))
    for item in items:
        if item.get_closest_marker("cuda") and (why := _why_no_cuda()):
            item.add_marker(pytest.mark.skip(reason=why))
        if (engine := item.get_closest_marker("engine")) and (why := _why_no_engine(name := engine.args[0])):
            if name in required:
                raise pytest.UsageError(f"SPECFUZZ_REQUIRE_ENGINES names `{name}`, but {why}")
            item.add_marker(pytest.mark.skip(reason=why))
