"""Clauses about output: the text is plain greedy decoding, whatever the algorithm, the loop and the interleaving."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specfuzz.conformance.clauses import MOST_SERVED, Answer, Evidence, broken, clause, holds, unjudged
from specfuzz.conformance.runs import Run
from specfuzz.conformance.walks import Loop, mixed_runs, typical_requests
from specfuzz.core.asked import Standing
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Retract
from specfuzz.core.legality import Ledger
from specfuzz.errors import ConfigError

#: What the client sees of one request: its tokens through the stop, and why it ended.
Outputs = dict[str, tuple[tuple[int, ...], str | None]]


def accept_patterns(config: EngineConfig) -> tuple[Callable[[str, int], int], ...]:
    """Always one token, always the most, and every length in turn."""
    return (lambda rid, decided: 1, lambda rid, decided: config.max_accept, mixed_runs(config))


def outputs(run: Run) -> Outputs:
    """What every request of the run has put out."""
    reqs = run.moments[-1].after.reqs if run.moments else {}
    return {rid: (req.emitted, req.finished_reason) for rid, req in reqs.items()}


def _compared(one: Outputs, other: Outputs) -> str | None:
    """The first request with another output, or None."""
    for rid in one:
        (ours, reason), (theirs, other_reason) = one[rid], other.get(rid, ((), None))
        if ours != theirs:
            at = next((at for at, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), None)
            where = f"{len(ours)} and {len(theirs)} tokens" if at is None else f"from token {at} on"
            return f"{rid} has another text: {where}"
        if reason != other_reason:
            return f"{rid} finishes by {reason}, then by {other_reason}"
    return None


def _unlike(one: Run, other: Run, what: str) -> Answer | None:
    """The answer where two runs of the same requests don't put out the same, or didn't get to their end; else None."""
    stopped = one.stopped or other.stopped
    if stopped is not None:
        return unjudged(str(stopped))
    wrong = _compared(outputs(one), outputs(other))
    return broken(f"{what}: {wrong}") if wrong else None


def _expected(ledger: Ledger) -> Outputs:
    found: Outputs = {}
    for rid, asked in ledger.requests.items():
        start, cap = asked.submit.prompt_len, asked.submit.max_new
        end = cap if asked.stop_at is None else min(asked.stop_at + 1, cap)
        reason = "length" if asked.stop_at is None or asked.stop_at >= cap else "stop"
        found[rid] = tuple(asked.text.token(start + at) for at in range(end)), reason
    return found


@clause("text-is-plain-decoding")
def text_is_plain_decoding(evidence: Evidence) -> Answer:
    """Whatever is accepted per round, each request puts out the text of plain greedy decoding, through stop or cap."""
    tokens = 0
    for config in evidence.configs:
        for accept in accept_patterns(config):
            run = evidence.serve(config, accept)
            if run.stopped is not None:
                return unjudged(run.stopped)
            got = outputs(run)
            wrong = _compared(_expected(run.ledger()), got)
            if wrong:
                return broken(f"{config.label()}: {wrong}")
            tokens += sum(len(text) for text, _reason in got.values())
    return holds(f"{tokens} tokens over {len(evidence.configs)} configurations, with short, long and mixed runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Twin:
    """The same requests on another configuration."""

    config: EngineConfig
    label: str


def _same_text(evidence: Evidence, twins: Callable[[EngineConfig], _Twin | None], missing: str) -> Answer:
    """Serve the same requests under every configuration and under its twin; what the client sees must be the same."""
    pairs, refused = 0, ""
    for config in evidence.configs:
        twin = twins(config)
        if twin is None:
            continue
        try:
            evidence.system.capabilities(twin.config)
        except ConfigError as error:
            refused = f": {error}"
            continue
        ours, theirs = evidence.serve(config), evidence.serve(twin.config, like=config)
        unlike = _unlike(ours, theirs, f"{config.label()} and {twin.label}")
        if unlike is not None:
            return unlike
        pairs += 1
    return holds(f"{pairs} pairs of configurations") if pairs else unjudged(missing + refused)


@clause("speculation-changes-no-text")
def speculation_changes_no_text(evidence: Evidence) -> Answer:
    """A speculative algorithm puts out what the same engine puts out without one."""

    def plain(config: EngineConfig) -> _Twin | None:
        if not config.speculative:
            return None
        undrafted = config.with_(algorithm="NONE", topk=1, draft_token_num=config.spec_steps + 1)
        return _Twin(config=undrafted, label="without drafts")

    return _same_text(evidence, plain, "no speculative configuration runs without drafts as well")


@clause("overlap-changes-no-text")
def overlap_changes_no_text(evidence: Evidence) -> Answer:
    """An engine that settles one launch late puts out what it puts out without overlap."""

    def sync(config: EngineConfig) -> _Twin | None:
        return _Twin(config=config.with_(overlap=False), label="without overlap") if config.overlap else None

    return _same_text(evidence, sync, "no overlapped configuration runs without overlap as well")


#: How often the kit tries to retract in one run; an engine may refuse a moment, not every one.
MOST_RETRACTIONS = 3


class _Interrupt:
    """Retracts a running request each time that it has put out a few tokens more."""

    def __init__(self) -> None:
        self._tried = 0

    def __call__(self, ledger: Ledger) -> Event | None:
        running = [rid for rid, asked in ledger.requests.items() if asked.standing is Standing.RUNNING]
        ready = [rid for rid in running if ledger.requests[rid].settled >= 2 * (self._tried + 1)]
        if self._tried >= MOST_RETRACTIONS or not ready or not ledger.may_launch():
            return None
        self._tried += 1
        return Retract(ready[self._tried % len(ready)])


@clause("resuming-changes-no-text")
def resuming_changes_no_text(evidence: Evidence) -> Answer:
    """A request that is retracted and resumed puts out what it would have put out undisturbed."""
    retractions = 0
    for config in evidence.configs:
        submits, stops = typical_requests(config)
        plain = evidence.serve(config)
        loop = Loop(submits, accept=mixed_runs(config), stops=stops, disturb=_Interrupt())
        run = evidence.play(config, loop, most=MOST_SERVED)
        unlike = _unlike(plain, run, f"{config.label()}, retracted and resumed")
        if unlike is not None:
            return unlike
        retractions += sum(len(receipt.retracted) for receipt in run.receipts)
    return holds(f"{retractions} retractions") if retractions else unjudged("every retraction was refused")


@clause("batch-order-changes-no-text")
def batch_order_changes_no_text(evidence: Evidence) -> Answer:
    """Requests that come in another order, so that they stand in other rows, put out what they put out before."""
    runs = 0
    for config in evidence.configs:
        submits, stops = typical_requests(config)
        ours = evidence.serve(config)
        for order in (submits[::-1], (*submits[2:], *submits[:2])):
            loop = Loop(order, accept=mixed_runs(config), stops=stops)
            theirs = evidence.play(config, loop, most=MOST_SERVED)
            rids = ", ".join(one.rid for one in order)
            unlike = _unlike(ours, theirs, f"{config.label()}, submitted as {rids}")
            if unlike is not None:
                return unlike
            runs += 1
    return holds(f"{runs} runs in another order")


CLAUSES = (
    text_is_plain_decoding, speculation_changes_no_text, overlap_changes_no_text, resuming_changes_no_text,
    batch_order_changes_no_text,
)  # fmt: skip
