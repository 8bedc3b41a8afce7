"""Legality as one pure fold over (event, receipt): what was asked for so far, and which event may come next.

Rules, session and shrinker all ask this ledger; nothing asks an engine what is legal. The ledger is a
function of the (event, receipt) sequence alone, and updated in place for speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specfuzz.core.asked import Asked, Launched, Standing
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import (
    STREAMS,
    Abort,
    Advance,
    Event,
    Evict,
    Finish,
    Idle,
    Mix,
    Prefill,
    Prepare,
    Publish,
    Retract,
    Settle,
    Submit,
    Verify,
)
from specfuzz.core.receipt import Receipt


class Ledger:
    """The fold. `admits(event)` says whether an event is legal now; `record(event, receipt)` takes the step."""

    def __init__(self, config: EngineConfig) -> None:
        """config: the configuration of the run; it bounds accept lengths and the set of legal events."""
        self.config = config
        self.requests: dict[str, Asked] = {}
        self.in_flight: list[Launched] = []
        self.prepared: tuple[str, ...] | None = None
        self.settled: list[Launched] = []  # those that the last recorded event settled
        self.launches = 0
        self.published = 0  # number of the newest launch that a `publish` or a forced wait has covered
        self.events = 0

    # ------------------------------------------------------------------ questions
    def running(self) -> list[str]:
        """Rids that are admitted as a whole and not finished, in order of submission."""
        return [rid for rid, asked in self.requests.items() if asked.standing is Standing.RUNNING]

    def waiting(self) -> list[str]:
        """Rids that may be prefilled as far as they themselves go (a retracted one only when nothing carries it).

        A scheduler works on one chunked request at a time: while one goes on, it is the only candidate.
        """
        chunked = self.chunked()
        if chunked is not None:
            return [chunked]
        carried = {rid for launched in self.in_flight for rid in launched.rids}
        return [
            rid
            for rid, asked in self.requests.items()
            if asked.standing is Standing.WAITING and not (asked.was_retracted and rid in carried)
        ]

    def chunked(self) -> str | None:
        """The request whose prompt is launched in part and goes on, unless an abort waits for it."""
        for rid, asked in self.requests.items():
            if asked.standing is Standing.CHUNKED and not asked.dropping:
                return rid
        return None

    def live(self) -> list[str]:
        """Rids that are not finished."""
        return [rid for rid, asked in self.requests.items() if asked.standing is not Standing.FINISHED]

    def unpublished(self) -> list[Launched]:
        """Launched forwards whose publish was not asked for yet, oldest first."""
        return [launched for launched in self.in_flight if launched.number > self.published]

    def may_launch(self) -> bool:
        """Nothing is prepared and at most one forward is in flight (none without overlap)."""
        return self.prepared is None and len(self.in_flight) <= (1 if self.config.overlap else 0)

    def admits(self, event: Event) -> bool:
        """Whether the event is legal now; pure."""
        if self.in_flight and not self.config.overlap and type(event) not in _BETWEEN_LAUNCH_AND_SETTLE:
            return False  # without overlap a launch and its settle are one step of the engine's loop
        return _ADMITS[type(event)](self, event)

    # ------------------------------------------------------------------ the step
    def record(self, event: Event, receipt: Receipt) -> None:
        """Fold one applied event and its receipt into the ledger."""
        self.events += 1
        self.settled = []
        if receipt.settled is not None:
            self._settle(receipt)
        for rid in receipt.retracted:
            self._requeue(rid)
        told = _TOLD.get(type(event))
        if told is not None:
            told(self, event, receipt)
        for rid, _reason, _length in receipt.finished:
            self.requests[rid].standing = Standing.FINISHED

    def _submitted(self, event: Submit, receipt: Receipt) -> None:
        self.requests[event.rid] = Asked(submit=event)

    def _prepared(self, event: Prepare, receipt: Receipt) -> None:
        self.prepared = receipt.rows or None

    def _asked_to_publish(self, event: Publish, receipt: Receipt) -> None:
        pending = self.unpublished()
        self.published = pending[0].number if pending else self.published

    def _armed(self, event: Finish, receipt: Receipt) -> None:
        self.requests[event.rid].arm_stop(event.at)

    def _aborted(self, event: Abort, receipt: Receipt) -> None:
        asked = self.requests[event.rid]
        asked.aborted, asked.dropping = True, asked.standing is Standing.CHUNKED

    def _launch_extend(self, event: Prefill | Mix, receipt: Receipt) -> None:
        if receipt.launch is None:
            return
        admitted, middle = [], []
        for rid, prefix_len, extend_len in receipt.admitted:
            asked = self.requests[rid]
            asked.lives += asked.standing is not Standing.CHUNKED
            admitted.append(rid)
            if prefix_len + extend_len < asked.submit.prompt_len + asked.settled:
                middle.append(rid)
            asked.standing = Standing.CHUNKED if rid in middle else Standing.RUNNING
            asked.was_retracted = False
            asked.extend_settled = False
        for rid in receipt.rows:
            self.requests[rid].decided += rid not in middle
        self._launched(receipt, (1,) * len(receipt.rows), tuple(admitted), tuple(middle))

    def _launch_decode(self, event: Verify, receipt: Receipt) -> None:
        if receipt.launch is None:
            return
        wanted = dict(event.accept)
        accept = tuple(max(1, min(wanted.get(rid, 1), self.config.max_accept)) for rid in receipt.rows)
        for rid, run in zip(receipt.rows, accept, strict=True):
            self.requests[rid].decided += run
        self.prepared = None
        self._launched(receipt, accept)

    def _launched(
        self,
        receipt: Receipt,
        accept: tuple[int, ...],
        extended: tuple[str, ...] = (),
        middle: tuple[str, ...] = (),
    ) -> None:
        assert receipt.launch is not None
        self.launches = receipt.launch
        lives = tuple(self.requests[rid].lives for rid in receipt.rows)
        self.in_flight.append(
            Launched(
                number=receipt.launch,
                mode=receipt.mode,
                rids=receipt.rows,
                accept=accept,
                lives=lives,
                extended=extended,
                middle=middle,
                admitted=receipt.admitted,
            )
        )

    def _settle(self, receipt: Receipt) -> None:
        assert receipt.settled is not None
        while self.in_flight and self.in_flight[0].number <= receipt.settled:
            launched = self.in_flight.pop(0)
            self.published = max(self.published, launched.number)
            self.settled.append(launched)
            for rid in launched.extended:
                self.requests[rid].extend_settled = rid not in launched.middle
        for rid, tokens in receipt.emitted:
            self.requests[rid].settled += len(tokens)

    def _requeue(self, rid: str) -> None:
        asked = self.requests[rid]
        asked.standing = Standing.WAITING
        asked.was_retracted = True
        asked.decided = asked.settled  # what is in flight is lost and will be generated again


# ---------------------------------------------------------------------- one predicate per event
def _submit(ledger: Ledger, event: Submit) -> bool:
    fits = event.prompt_len + event.max_new <= ledger.config.context_len
    return (
        event.rid not in ledger.requests
        and event.prompt_len >= 2  # the draft's first cell needs a second token
        and event.max_new >= 1
        and 0 <= event.shared_len <= event.prompt_len
        and 0 <= event.grammar <= (event.max_new if ledger.config.grammar else 0)
        and fits
    )


def _prefill(ledger: Ledger, event: Prefill) -> bool:
    return (event.n == 0 or ledger.config.chunked_prefill) and ledger.may_launch() and event.rid in ledger.waiting()


def _mix(ledger: Ledger, event: Mix) -> bool:
    if not ledger.config.mixed_chunk or not ledger.running():
        return False
    return (event.n == 0 or ledger.config.chunked_prefill) and ledger.may_launch() and event.rid in ledger.waiting()


def _prepare(ledger: Ledger, event: Prepare) -> bool:
    return ledger.may_launch() and bool(ledger.running())


def _verify(ledger: Ledger, event: Verify) -> bool:
    return ledger.prepared is not None


def _publish(ledger: Ledger, event: Publish) -> bool:
    return ledger.config.overlap and bool(ledger.unpublished())


def _advance(ledger: Ledger, event: Advance) -> bool:
    return event.stream in STREAMS and event.count >= 1


def _settle(ledger: Ledger, event: Settle) -> bool:
    return bool(ledger.in_flight)


def _finish(ledger: Ledger, event: Finish) -> bool:
    asked = ledger.requests.get(event.rid)
    if asked is None or asked.standing is Standing.FINISHED or asked.armed:
        return False
    return asked.decided <= event.at < asked.stop_end(ledger.config.max_accept)


def _abort(ledger: Ledger, event: Abort) -> bool:
    asked = ledger.requests.get(event.rid)
    return asked is not None and asked.standing is not Standing.FINISHED and not asked.aborted


def _retract(ledger: Ledger, event: Retract) -> bool:
    asked = ledger.requests.get(event.rid)
    return asked is not None and asked.standing is Standing.RUNNING and ledger.may_launch()


def _evict(ledger: Ledger, event: Evict) -> bool:
    return event.n >= 1 and ledger.prepared is None


def _idle(ledger: Ledger, event: Idle) -> bool:
    return True


_ADMITS: dict[type[Event], Callable[[Ledger, Any], bool]] = {
    Submit: _submit, Prefill: _prefill, Mix: _mix, Prepare: _prepare, Verify: _verify, Publish: _publish,
    Advance: _advance, Settle: _settle, Finish: _finish, Abort: _abort, Retract: _retract, Evict: _evict, Idle: _idle,
}  # fmt: skip

#: What each event changes in the ledger beyond what its receipt says; the others change nothing more.
_TOLD: dict[type[Event], Callable[[Ledger, Any, Receipt], None]] = {
    Submit: Ledger._submitted, Prefill: Ledger._launch_extend, Mix: Ledger._launch_extend, Prepare: Ledger._prepared,
    Verify: Ledger._launch_decode, Publish: Ledger._asked_to_publish, Finish: Ledger._armed, Abort: Ledger._aborted,
}  # fmt: skip

_BETWEEN_LAUNCH_AND_SETTLE = frozenset({Settle, Advance, Idle})
