"""Several jobs share a campaign without changing what is run: the same configurations, each with the same budget."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from specfuzz.cli import campaigns, interrupts
from specfuzz.cli.campaigns import Errand, WorkerStopped, divided, in_processes
from specfuzz.core.config import EngineConfig
from specfuzz.core.port import OpenOptions


def errand(configs: int, max_examples: int | None) -> Errand:
    return Errand(
        system="reference", options=OpenOptions(), oracles=(), seed=1, max_time=None, profile="dev",
        configs=tuple(EngineConfig(num_pages=64 + at) for at in range(configs)), max_examples=max_examples,
    )  # fmt: skip


def budgets(part: Errand) -> dict[EngineConfig, int]:
    """As `campaign.fuzz` divides a plan: the first configurations get what is left over."""
    assert part.max_examples is not None
    share, rest = divmod(part.max_examples, len(part.configs))
    return {config: share + (at < rest) for at, config in enumerate(part.configs)}


@pytest.mark.parametrize("jobs", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("max_examples", [7, 8, 100, 101])
def test_every_configuration_keeps_its_budget(jobs: int, max_examples: int) -> None:
    whole = errand(7, max_examples)
    joined: dict[EngineConfig, int] = {}
    for part in divided(whole, jobs):
        joined |= budgets(part)
    assert joined == budgets(whole)


def test_without_a_bound_on_examples_the_configurations_are_shared_out() -> None:
    whole = errand(5, None)
    parts = divided(whole, 2)
    assert sorted(c.num_pages for part in parts for c in part.configs) == [c.num_pages for c in whole.configs]


def handed_in_or_never(part: str) -> str:
    if part == "never":
        threading.Event().wait()
    return part.upper()


def interrupted_at_the_second_part(monkeypatch: pytest.MonkeyPatch, *parts: str) -> list[Any]:
    """What came of the parts: two signals arrive when the first one is in, and the second one is waited for."""
    waited: list[Future[Any]] = []
    outcome = campaigns._outcome

    def interrupting(future: Future[Any]) -> Any:
        waited.append(future)
        if len(waited) == 2:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        return outcome(future)

    monkeypatch.setattr(campaigns, "_outcome", interrupting)
    with interrupts.caught():
        return in_processes(handed_in_or_never, parts, 2)


def test_a_second_signal_ends_the_workers_and_keeps_what_they_have_handed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = interrupted_at_the_second_part(monkeypatch, "first", "never")
    assert first == "FIRST" and isinstance(second, WorkerStopped) and second.exit_status == 143
