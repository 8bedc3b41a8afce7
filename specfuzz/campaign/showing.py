"""From a trace to its report: the events run again for the three clocks, beside the system's clean twin."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from specfuzz.core.oracle import Oracle
from specfuzz.core.port import OpenOptions, System, open_system
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Violation
from specfuzz.errors import EngineFault, SpecfuzzError
from specfuzz.report.clocks import render_clocks
from specfuzz.report.commands import replay_command
from specfuzz.report.console import width_of
from specfuzz.report.explain import ClockTable, clock_table
from specfuzz.report.json import fault_object, violation_object
from specfuzz.report.recording import Recording, record
from specfuzz.report.text import render_failure, render_fault
from specfuzz.trace.replay import fault_identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A trace as it ran just now. spec: the system as the user would write it, None for one without a name.

    violation: the one to speak about. others: what the same event violated besides. fault: what the engine raised, if
    it did. engine_path: the checkout that was driven, None for the installed engine.
    """

    trace: Trace
    spec: str | None
    recording: Recording
    violation: Violation | None
    others: tuple[Violation, ...]
    fault: EngineFault | None
    table: ClockTable
    engine_path: str | None = None

    @property
    def identity(self) -> Identity | None:
        """Of the violation or the fault; None if all holds."""
        if self.violation is not None:
            return self.violation.identity
        return None if self.fault is None else fault_identity(self.fault)

    def entry(self, *, path: str | None = None, known: str | None = None) -> dict[str, Any]:
        """Its entry in `violations`; only where something is violated."""
        events = self.recording.events
        if self.violation is not None:
            return violation_object(self.violation, events, trace=path, baseline=known)
        assert self.fault is not None
        return fault_object(str(self.fault), fault_identity(self.fault).phase, events, trace=path, baseline=known)

    def lines(self, *, path: str | None = None, known: str | None = None, more: Sequence[str] = ()) -> list[Text]:
        """The whole report in the design's order; of what holds, the clocks alone.

        path: of the trace's file. more: commands that show it again, besides those of the command line.
        """
        width = width_of(sys.__stdout__ or sys.stdout)
        events = self.recording.events
        replay = [*commands_of(self.trace, self.spec, path, self.engine_path), *more]
        if self.violation is not None:
            return render_failure(
                self.violation, events, table=self.table, replay=replay, known=known,
                others=list(dict.fromkeys(v.title for v in self.others)), width=width,
            )  # fmt: skip
        if self.fault is not None:
            return render_fault(self.fault, events, table=self.table, replay=replay, known=known, width=width)
        return render_clocks(self.table, width)


def show(
    trace: Trace,
    system: System,
    spec: str | None,
    options: OpenOptions,
    oracles: Sequence[Oracle],
    *,
    twin: bool = True,
) -> Shown:
    """Run the trace on the open system and on its clean twin, and find the first bad cell.

    The violation to speak about is the trace's expected one, if it came about, else the one that implies the others.
    """
    from specfuzz.oracles.implications import roots_first  # here: `--help` of a verb shall not load every oracle

    recording = record(system, trace.config, trace.events, oracles)
    clean = record_clean(spec, recording, options) if twin and (recording.violations or recording.fault) else None
    ordered = roots_first(recording.violations)
    violation = next((v for v in ordered if v.identity == trace.expected), ordered[0] if ordered else None)
    return Shown(
        trace=trace, spec=spec, recording=recording, violation=violation, fault=recording.fault,
        others=tuple(v for v in ordered if v is not violation),
        table=clock_table(recording, clean=clean, violation=violation), engine_path=options.engine_path,
    )  # fmt: skip


def clean_twin(spec: str) -> str | None:
    """The system without the planted bug: `reference` for `mutated:X`, `sglang` for `sglang:X`; else None."""
    name, _, argument = spec.partition(":")
    if name == "mutated":
        return "reference"
    return name if name == "sglang" and argument else None


def record_clean(spec: str | None, recording: Recording, options: OpenOptions) -> Recording | None:
    """The same events on the clean twin, unjudged; None where there is no twin or it can't run them."""
    twin = None if spec is None else clean_twin(spec)
    if twin is None:
        return None
    try:
        with closing(open_system(twin, options)) as system:
            return record(system, recording.config, [moment.event for moment in recording.moments])
    except SpecfuzzError:
        return None  # the marks are then the oracle's alone


def commands_of(trace: Trace, spec: str | None, path: str | None, engine_path: str | None = None) -> list[str]:
    """How to replay: by file, where there is one, and by notation; a system without a name has no command line.

    engine_path: the checkout that was driven, None for the installed engine.
    """
    if spec is None:
        return []
    checkout = [] if engine_path is None else ["--engine-path", engine_path]
    by_file = [] if path is None else [shlex.join(["specfuzz", "replay", *checkout, path])]
    return [*by_file, replay_command(spec, trace.config, trace.events, more=checkout)]
