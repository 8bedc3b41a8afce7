"""Reachable goals of constrained decoding: what its rules need to have met."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.event import Mix, Prefill, Settle, Verify
from specfuzz.core.oracle import Step, reachable
from specfuzz.oracles.facts import retained, settled_rows, view_of

GRAMMAR = Capability.GRAMMAR


@reachable("grammar-terminates", needs=GRAMMAR, on=(Settle,))
def grammar_terminates(step: Step) -> bool:
    """A constrained text comes to its end."""
    reqs = step.after.reqs
    return any(rid in reqs and reqs[rid].grammar_terminated for rid, _reason, _length in step.receipt.finished)


@reachable("grammar-ends-inside-a-run", needs=GRAMMAR | Capability.SPECULATIVE | Capability.LAUNCH_VIEW, on=(Settle,))
def grammar_ends_inside_a_run(step: Step) -> bool:
    """A verify has accepted tokens past the end of a constrained text."""
    for rid, rows in settled_rows(step).items():
        for known, row in rows:
            launch = view_of(step.after.launches, known.number)
            if launch is not None and launch.exit is not None and step.ledger.requests[rid].submit.grammar:
                run = launch.exit.next_tokens[row]
                if len(retained(step, rid, run)) < len(run):
                    return True
    return False


@reachable(
    "grammar-accepts-early",
    needs=GRAMMAR | Capability.GRAMMAR_OVERLAP | Capability.OVERLAP | Capability.LAUNCH_VIEW,
    on=(Verify, Mix),
)
def grammar_accepts_early(step: Step) -> bool:
    """A forward needs masks while the result before it is unsettled, so that its FSMs accept that result first."""
    return any(view.grammar_advanced for view in step.after.launches)


@reachable("constrained-request-resumes", needs=GRAMMAR, on=(Prefill, Mix))
def constrained_request_resumes(step: Step) -> bool:
    """A request whose FSM has moved on is admitted again after a retraction."""
    for rid, _prefix, _extend in step.receipt.admitted:
        req = step.after.reqs[rid]
        if req.grammar_accepted and req.retraction_count:
            return True
    return False
