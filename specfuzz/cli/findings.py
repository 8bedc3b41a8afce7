"""The report of a trace, as every verb prints it; how it is made stands in `campaign.showing`.

A finding is reported also where it doesn't come about again, or where nothing can be run any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from specfuzz.campaign.showing import Shown, commands_of, show
from specfuzz.cli.engines import opened
from specfuzz.cli.interrupts import stop_asked
from specfuzz.cli.tables import report_width
from specfuzz.core.oracle import Oracle
from specfuzz.core.port import OpenOptions, System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Violation
from specfuzz.errors import EngineFault, SpecfuzzError
from specfuzz.report.json import fault_object, violation_object
from specfuzz.report.text import render_failure, render_fault
from specfuzz.trace.replay import fault_identity

__all__ = ["Shown", "Told", "show", "show_found"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A finding as it was found, without clocks. violation: None for a fault. because: why there isn't more."""

    trace: Trace
    spec: str
    violation: Violation | None
    fault: EngineFault | None
    because: str
    engine_path: str | None = None

    def entry(self, *, path: str | None = None, known: str | None = None) -> dict[str, Any]:
        """Its entry in `violations`."""
        if self.violation is not None:
            return violation_object(self.violation, self.trace.events, trace=path, baseline=known)
        assert self.fault is not None
        phase = fault_identity(self.fault).phase
        return fault_object(str(self.fault), phase, self.trace.events, trace=path, baseline=known)

    def lines(self, *, path: str | None = None, known: str | None = None) -> list[Text]:
        """What is known of it, in the design's order, and why it isn't more."""
        events, width = self.trace.events, report_width()
        replay = commands_of(self.trace, self.spec, path, self.engine_path)
        if self.violation is not None:
            lines = render_failure(self.violation, events, replay=replay, known=known, width=width)
        else:
            lines = render_fault(self.fault or "", events, replay=replay, known=known, width=width)
        return [*lines, Text(self.because)]


def show_found(
    trace: Trace,
    spec: str,
    options: OpenOptions,
    oracles: Sequence[Oracle],
    *,
    violations: Sequence[Violation],
    fault: EngineFault | None,
    system: System | None = None,
) -> Shown | Told:
    """Show a finding again on the open system, or on a fresh one; where that can't be done it is told as it was found.

    violations, fault: what it ended in; one of them is given.
    """
    try:
        with opened(spec, options) if system is None else nullcontext(system) as engine:
            # The clean twin may be another engine to start: nobody who has interrupted us waits for that.
            shown = show(trace, engine, spec, options, oracles, twin=not stop_asked())
        if shown.identity is not None:
            return shown
        because = "it did not come about again: the engine is not deterministic"
    except KeyboardInterrupt:
        because = "it was not run again: interrupted"
    except SpecfuzzError as error:
        because = f"it could not be run again: {error}"
    violation = next((v for v in violations if v.identity == trace.expected), violations[0] if violations else None)
    return Told(
        trace=trace, spec=spec, violation=violation, fault=fault, because=because, engine_path=options.engine_path
    )
