"""The one loop that joins everything: apply the event, snapshot, judge, append to the trace."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.judge import Tally
from specfuzz.core.legality import Ledger
from specfuzz.core.notation import format_event
from specfuzz.core.oracle import Oracle, Reachable, Step
from specfuzz.core.port import Comparing, System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Violation
from specfuzz.errors import EngineFault


class Session:
    """One run of one system. A front end chooses events, the system executes them, the judge judges.

    Events are total: one that isn't legal now is skipped and leaves no mark in the trace. After a fault, and unless it
    runs to the end also after a violation, the session is over and skips everything.

    violations: of the last applied event.
    """

    def __init__(
        self,
        system: System,
        config: EngineConfig,
        oracles: Sequence[Oracle],
        goals: Sequence[Reachable] = (),
        *,
        tally: Tally | None = None,
        keep_digest: bool = False,
        to_the_end: bool = False,
    ) -> None:
        """Reset the system. tally: counts applications across sessions; keep_digest: fingerprint every state.

        to_the_end: go on behind a violation, with whatever state it left; only a fault ends the session then.
        """
        system.reset(config)
        self.system = system
        self.config = config
        self.capabilities = system.capabilities(config)
        self.ledger = Ledger(config)
        self.steps: list[TraceStep] = []
        self.violations: list[Violation] = []
        self.fault: EngineFault | None = None
        self.skipped = 0
        self.lazy = False  # whether device work was pending after some host event
        self._to_the_end = to_the_end
        self._judge = (tally if tally is not None else Tally()).panel(oracles, goals, self.capabilities)
        self._judge.begin()
        self._memo: dict[Any, Any] = {}
        self._digest = hashlib.blake2b(digest_size=16) if keep_digest else None
        self._comparing = system if isinstance(system, Comparing) else None
        self.state: Snapshot = system.snapshot()

    @property
    def over(self) -> bool:
        """Whether an engine fault has ended the run, or a violation has that ends it."""
        return self.fault is not None or bool(self.violations and not self._to_the_end)

    def step(self, event: Event) -> list[Violation]:
        """Apply one event if it is legal; returns its violations. Raises EngineFault after recording it.

        A receipt that contradicts what was asked for is such a fault, because nobody can go on from there.
        """
        if self.over or not self.ledger.admits(event):
            self.skipped += 1
            return []
        try:
            receipt = self.system.apply(event)
            after = self.system.snapshot()
            self._record(event, receipt)
        except EngineFault as fault:
            self.fault = fault
            self.steps.append(TraceStep(event=event))
            raise
        self.steps.append(TraceStep(event=event, receipt=receipt))
        step = Step(
            index=len(self.steps) - 1, event=event, receipt=receipt, before=self.state, after=after, ledger=self.ledger,
            config=self.config, capabilities=self.capabilities, memo=self._memo,
        )  # fmt: skip
        self.state = after
        if after.device is not None and after.device.pending:
            self.lazy = True
        if self._digest is not None:
            self._digest.update(repr((event, receipt, after)).encode())
        self.violations = self._judge.judge(step)
        if self._comparing is not None:
            self.violations += self._comparing.take_differences(step.index)
        return self.violations

    def _record(self, event: Event, receipt: Receipt) -> None:
        try:
            self.ledger.record(event, receipt)
        except Exception as error:  # whatever it is: an adapter may have written anything
            what, kind = format_event(event), type(error).__name__
            raise EngineFault(
                f"the receipt of `{what}` makes no sense ({kind}: {error}): {receipt}", where=f"{kind} in receipt"
            ) from error

    def trace(self, **header: Any) -> Trace:
        """The applied events so far as a trace; header: further fields of `Trace`."""
        found = self.violations[0].identity if self.violations else None
        fields = {"system": self.system.name, "version": self.system.version, "expected": found, **header}
        return Trace(config=self.config, steps=tuple(self.steps), **fields)

    def digest(self) -> str:
        """Hex fingerprint of every event, receipt and state so far; needs keep_digest."""
        assert self._digest is not None
        return self._digest.hexdigest()
