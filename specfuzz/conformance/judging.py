"""Judges a subject's runs with registered oracles, so that a clause can lean on a rule instead of restating it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specfuzz.conformance.clauses import Answer, Evidence, broken, holds, place, unjudged
from specfuzz.conformance.runs import Run
from specfuzz.core.capability import Capability
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import ORACLES, Step


def kept_by(evidence: Evidence, *names: str, also_without: Capability = Capability.NONE) -> Answer:
    """Whether these oracles hold in every run that has what they need; the first violation breaks the clause.

    also_without: abilities that bind a rule for engines at large, and that its subject here need not have. Raises
    UnknownName.
    """
    tally = Tally()
    registered = [ORACLES.get(name) for name in names]
    oracles = [replace(oracle, needs=oracle.needs & ~also_without) for oracle in registered]
    for run in evidence.runs:
        panel = tally.panel(oracles, (), run.capabilities)
        for step in _steps(run):
            for found in panel.judge(step):
                where, facts = place(run, step.index), f"{found.fact}, but {found.counterfact}"
                return broken(f"{where}: {facts}: {found.values} (`{found.oracle}`)")
    applied = {name: tally.of(name).applied for name in names}
    if not any(applied.values()):
        return unjudged(f"nothing was seen that `{'` or `'.join(names)}` could judge")
    return holds(", ".join(f"`{name}` {times} times" for name, times in applied.items() if times))


def _steps(run: Run) -> Iterator[Step]:
    """Every event of the run as a session would hand it to the oracles."""
    memo: dict[Any, Any] = {}
    for index, (moment, ledger) in enumerate(run.steps()):
        yield Step(
            index=index, event=moment.event, receipt=moment.receipt, before=moment.before, after=moment.after,
            ledger=ledger, config=run.config, capabilities=run.capabilities, memo=memo,
        )  # fmt: skip
