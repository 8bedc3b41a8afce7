"""The one JSON object that every verb prints with `--json`; keys may be added, none may change meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from specfuzz import __version__
from specfuzz.core.event import Event
from specfuzz.core.notation import format_events
from specfuzz.core.verdict import Violation

#: The words that `verdict` may be.
HOLDS, VIOLATED, UNKNOWN, ERROR = "holds", "violated", "unknown", "error"


def envelope(
    verb: str, *, seed: int | None, seconds: float, verdict: str, violations: Iterable[dict[str, Any]] = (), **more: Any
) -> dict[str, Any]:
    """The object of one verb: the common keys, then its own."""
    return {
        "verb": verb, "version": __version__, "seed": seed, "seconds": round(seconds, 3), "verdict": verdict,
        "violations": list(violations), **more,
    }  # fmt: skip


def violation_object(
    violation: Violation, events: Sequence[Event], *, trace: str | None = None, baseline: str | None = None
) -> dict[str, Any]:
    """One entry of `violations`. trace: path of its file, None if not saved. baseline: why it is a known finding."""
    return {
        "oracle": violation.oracle, "owner": violation.owner, "clock": violation.clock, "phase": violation.phase,
        "events": len(events), "notation": format_events(events), "trace": trace, "baseline": baseline,
        "formula": violation.formula, "values": violation.values, "fact": violation.fact,
        "counterfact": violation.counterfact, "rid": violation.rid, "event_index": violation.event_index,
        "source": violation.source,
    }  # fmt: skip


def fault_object(
    message: str, phase: str, events: Sequence[Event], *, trace: str | None = None, baseline: str | None = None
) -> dict[str, Any]:
    """An engine that raised, hung or died, as an entry of `violations`. phase: what failed and where."""
    return {
        "oracle": "engine-fault", "owner": "engine", "clock": "host", "phase": phase, "events": len(events),
        "notation": format_events(events), "trace": trace, "baseline": baseline, "fact": message,
    }  # fmt: skip


def error_object(verb: str, error: BaseException, *, seed: int | None, seconds: float, message: str) -> dict[str, Any]:
    """The object of a verb that could not do its work: `verdict` is "error", `error` says why."""
    return envelope(
        verb, seed=seed, seconds=seconds, verdict=ERROR, error={"kind": error_kind(error), "message": message}
    )


def error_kind(error: BaseException) -> str:
    """Kebab-case name of an error's class, e.g. `unknown-name`, `trace-error`, `missing-part`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(error).__name__.lstrip("_")).lower()
