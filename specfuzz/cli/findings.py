"""From a found violation to its report: its events run again for the three clocks, beside the system's clean twin."""

from __future__ import annotations

import shlex
import sys
from typing import Any

from rich.text import Text

from specfuzz.cli.engines import opened, replay_command
from specfuzz.core.oracle import ORACLES, Oracle
from specfuzz.core.port import OpenOptions, System
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Violation
from specfuzz.errors import EngineFault, SpecfuzzError
from specfuzz.report.console import width_of
from specfuzz.report.explain import clock_table
from specfuzz.report.json import fault_object, violation_object
from specfuzz.report.recording import Recording, record
from specfuzz.report.text import render_failure, render_fault

#: Identity of an engine that raised, hung or died; the same word as in `trace.replay`.
FAULT = "engine-fault"


def clean_twin(spec: str) -> str | None:
    """The system without the planted bug: `reference` for `mutated:X`, `sglang` for `sglang:X`; else None."""
    name, _, argument = spec.partition(":")
    if name == "mutated":
        return "reference"
    return name if name == "sglang" and argument else None


def record_clean(spec: str, trace: Trace, options: OpenOptions) -> Recording | None:
    """The same events on the clean twin, unjudged; None where there is no twin or it can't run them."""
    twin = clean_twin(spec)
    if twin is None:
        return None
    try:
        with opened(twin, options) as system:
            return record(system, trace.config, trace.events)
    except SpecfuzzError:
        return None  # the marks are then the oracle's alone


def commands_of(trace: Trace, system: str, path: str | None) -> list[str]:
    """How to replay: by file, where there is one, and always by notation."""
    by_file = [] if path is None else [f"specfuzz replay {shlex.quote(path)}"]
    return [*by_file, replay_command(system, trace.config, trace.events)]


def failure_lines(
    violation: Violation, trace: Trace, system: System, spec: str, options: OpenOptions,
    *, path: str | None = None, known: str | None = None,
) -> list[Text]:  # fmt: skip
    """The whole report of one violation; system: open, the one that shows it."""
    recording = record(system, trace.config, trace.events, _needed(violation))
    same = [v for v in recording.violations if v.identity == violation.identity]
    shown = same[0] if same else violation
    table = clock_table(recording, clean=record_clean(spec, trace, options), violation=shown)
    return render_failure(
        shown, recording.events, table=table, replay=commands_of(trace, spec, path), known=known,
        width=width_of(sys.__stdout__ or sys.stdout),
    )  # fmt: skip


def fault_lines(fault: EngineFault, trace: Trace, system: System, spec: str, *, path: str | None = None) -> list[Text]:
    """The report of an engine that raised, hung or died."""
    recording = record(system, trace.config, trace.events) if fault.kind == "exception" else None
    return render_fault(
        fault, trace.events, table=None if recording is None else clock_table(recording),
        replay=commands_of(trace, spec, path), width=width_of(sys.__stdout__ or sys.stdout),
    )  # fmt: skip


def violation_entry(
    violation: Violation, trace: Trace, *, path: str | None = None, known: str | None = None
) -> dict[str, Any]:
    """The JSON entry of a violation, or of a fault that a campaign reports as one."""
    return violation_object(violation, trace.events, trace=path, baseline=known)


def fault_entry(fault: EngineFault, trace: Trace, *, path: str | None = None) -> dict[str, Any]:
    """The JSON entry of an engine fault."""
    return fault_object(str(fault), fault.kind, trace.events, trace=path)


def _needed(violation: Violation) -> tuple[Oracle, ...]:
    """The one oracle that says it again; none where the system itself compares (lockstep, rerun)."""
    return (ORACLES.get(violation.oracle),) if violation.oracle in ORACLES else ()
