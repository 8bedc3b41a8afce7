"""What a front end may choose from right now: one pass over the ledger, made once per step."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import count, product
from string import ascii_lowercase

from specfuzz.core.asked import Asked, Standing
from specfuzz.core.legality import Ledger

#: Rids in the order in which requests are named: a, b, …, z, aa, ab, …
_NAMES = [*ascii_lowercase, *("".join(pair) for pair in product(ascii_lowercase, repeat=2))]


def _unused(requests: Container[str]) -> Iterator[str]:
    return (name for number in count() if (name := f"r{number}") not in requests)


class Scene:
    """The legal subjects of every kind of event, as the ledger has it now.

    waiting: may be prefilled, as far as their own standing goes; chunked: it is one whose prompt goes on. running:
    admitted. finishable: no stop is armed and the end of its text is not decided. abortable: live and not aborted.
    carried: rids of launches in flight and of the prepared batch. armed: whether a stop is due in the text of a running
    request. live: number of requests that are not finished. ended: whether one has finished (its KV may be cached).
    """

    __slots__ = (
        "abortable", "armed", "carried", "chunked", "config", "ended", "finishable", "in_flight", "ledger", "live",
        "may_launch", "prepared", "running", "unpublished", "waiting",
    )  # fmt: skip

    def __init__(self, ledger: Ledger) -> None:
        """ledger: read, never changed; the scene is stale after its next `record`."""
        in_flight = ledger.in_flight
        self.ledger = ledger
        self.config = ledger.config
        self.prepared = ledger.prepared
        self.in_flight = len(in_flight)
        self.may_launch = ledger.may_launch()
        self.unpublished = bool(in_flight) and in_flight[-1].number > ledger.published
        self.carried: set[str] = {rid for launched in in_flight for rid in launched.rids}
        self.waiting: list[str] = []
        self.running: list[str] = []
        self.finishable: list[str] = []
        self.abortable: list[str] = []
        self.armed = False
        self.live = 0
        chunked = None
        # What `Ledger.running`, `waiting`, `chunked` and `live` say, in one pass: asking each takes twice as long.
        for rid, asked in ledger.requests.items():
            standing = asked.standing
            if standing is Standing.FINISHED:
                continue
            self.live += 1
            if standing is Standing.RUNNING:
                self.running.append(rid)
                if asked.stop_at is not None:
                    self.armed = True
            elif standing is Standing.CHUNKED:
                if not asked.dropping:
                    chunked = rid
            elif not (asked.was_retracted and rid in self.carried):
                self.waiting.append(rid)
            if not asked.armed and asked.decided < (asked.submit.max_new if asked.stop_at is None else asked.stop_at):
                self.finishable.append(rid)
            if not asked.aborted:
                self.abortable.append(rid)
        self.chunked = chunked is not None
        if chunked is not None:
            self.waiting = [chunked]  # the only one that may be prefilled until its prompt is in
        self.ended = self.live < len(ledger.requests)
        if self.prepared is not None:
            self.carried.update(self.prepared)

    def asked(self, rid: str) -> Asked:
        """The request as it was asked for."""
        return self.ledger.requests[rid]

    def fresh_rid(self) -> str:
        """The next unused rid."""
        requests = self.ledger.requests
        name = _NAMES[len(requests)] if len(requests) < len(_NAMES) else f"r{len(requests)}"
        return name if name not in requests else next(_unused(requests))
