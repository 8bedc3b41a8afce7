"""What comes of an oracle that raises instead of judging: a finding that names it and what it could not read."""

from __future__ import annotations

import traceback
from pathlib import Path

from specfuzz.core.clock import Clock, Owner
from specfuzz.core.oracle import Step
from specfuzz.core.verdict import Identity, Violation
from specfuzz.errors import tame

#: Oracle name of such a finding. Its phase says what was raised and by which oracle or goal.
ORACLE_FAULT = "oracle-fault"
_IN = "-in-"


class BadAnswer(TypeError):
    """An oracle returned what is no finding: a mistake of its author, whatever the snapshot shows."""


def stumble(
    step: Step, name: str, error: Exception, *, clock: str = str(Clock.HOST), rid: str | None = None
) -> Violation:
    """The finding that the oracle or goal `name` raised `error` in this step, at the request `rid` if it has one.

    It is never a verdict about the engine, and no kill: either the snapshot makes no sense, or the oracle is wrong.
    """
    last = traceback.extract_tb(error.__traceback__)[-1]
    kind, place = type(error).__name__, f"{Path(last.filename).name}:{last.lineno} in {last.name}"
    return Violation(
        oracle=ORACLE_FAULT, owner=str(Owner.RECORDER), clock=clock, phase=f"{kind.lower()}{_IN}{name}",
        formula="every snapshot can be read by every oracle that looks at it",
        values=tame(f"{kind}: {error} at `{last.line}` ({place})"),
        fact=f"`{name}` raised {kind} when it looked at {'the state' if rid is None else rid} behind this event",
        counterfact="what a system shows must make sense, as `specfuzz conform` checks; if it does, the rule is wrong",
        source="specfuzz core/port System.snapshot", event_index=step.index, rid=rid,
    )  # fmt: skip


def stumbler(identity: Identity) -> str | None:
    """Name of the oracle or goal that raised, None for a violation of any other kind."""
    return identity.phase.partition(_IN)[2] if identity.oracle == ORACLE_FAULT else None
