"""Exceptions of the machine: one type per violation identity, so that Hypothesis keeps distinct bugs apart."""

from __future__ import annotations

from functools import cache

from specfuzz.core.notation import format_events
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Violation


class ViolationFound(AssertionError):
    """An example ended in a violation. Raised only as a subclass of its own per identity; see `violation_type`."""

    identity: Identity

    def __init__(self, violations: tuple[Violation, ...], trace: Trace) -> None:
        """violations: all that the last event brought, the first one gives the identity. trace: applied events."""
        first = violations[0]
        super().__init__(
            f"{first.title} after `{format_events(trace.events)}`: {first.values}; {first.fact}; {first.counterfact}"
        )
        self.violations = violations
        self.trace = trace


@cache
def violation_type(identity: Identity) -> type[ViolationFound]:
    """The exception class of one identity, always the same object."""
    name = "".join(part.title() for part in identity.oracle.replace("_", "-").split("-"))
    body = {"__doc__": f"Violation {identity}.", "__module__": __name__, "identity": identity}
    kind = type(name, (ViolationFound,), body)
    kind.__qualname__ = f"{name}[{identity.owner}, {identity.phase}]"
    return kind


def violation_found(violations: list[Violation], trace: Trace) -> ViolationFound:
    """The exception to raise for what one event brought."""
    return violation_type(violations[0].identity)(tuple(violations), trace)
