"""Choosers of events for the kit: seeded walks over what is legal, and a plain loop that serves requests to their end.

The walk draws from the same offers as the state machine, with Python's own generator instead of Hypothesis: the kit
needs many different situations, not a search.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from zlib import crc32

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import (
    Abort,
    Event,
    Evict,
    Finish,
    Idle,
    Mix,
    Prefill,
    Prepare,
    Publish,
    Settle,
    Submit,
    Verify,
)
from specfuzz.core.legality import Ledger
from specfuzz.core.receipt import Receipt
from specfuzz.state_machine import decoding
from specfuzz.state_machine.decoding import ARGUMENT_BITS
from specfuzz.state_machine.offers import offers
from specfuzz.state_machine.scenes import Scene
from specfuzz.state_machine.tempers import temper_of

#: Most events that one output token may cost while an engine drains: prepare, verify and settle for a row by itself,
#: and as many again for a life that is lost to a retraction; clean engines take half of that.
EVENTS_PER_TOKEN, SPARE_EVENTS = 6, 40

#: Tokens of a chunk where a page has fewer; the typical prompt has more.
SHORT_CHUNK = 4

_DECODERS: dict[str, Callable[[Scene, int], Event]] = {
    "submit": decoding.submit_of,
    "prefill": decoding.prefill_of,
    "mix": decoding.mix_of,
    "verify": decoding.verify_of,
    "advance": lambda _scene, bits: decoding.advance_of(bits),
    "finish": decoding.finish_of,
    "abort": decoding.abort_of,
    "retract": decoding.retract_of,
    "evict": lambda _scene, bits: decoding.evict_of(bits),
    "prepare": lambda _scene, _bits: Prepare(),
    "publish": lambda _scene, _bits: Publish(),
    "settle": lambda _scene, _bits: Settle(),
    "idle": lambda _scene, _bits: Idle(),
}


def mixed_runs(config: EngineConfig) -> Callable[[str, int], int]:
    """Accept lengths of every size, fixed by rid and progress."""
    return lambda rid, decided: 1 + crc32(f"{rid}{decided}".encode()) % config.max_accept


def typical_requests(config: EngineConfig) -> tuple[tuple[Submit, ...], tuple[Finish, ...]]:
    """A few requests that fit the configuration: two share a prefix, two have a stop, one has a single token to go.

    Each fits into the pool alone, so that no engine has to end it early. One is constrained, if that may be.
    """
    pool = config.pool_tokens - config.reserve_per_decode - config.max_accept - 2 * config.page_size
    room = max(4, min(config.context_len - 2, pool))
    output = min(12, room // 2)
    prompt = min(max(6, config.page_size + 2), room - output)
    submits = (
        Submit("a", prompt, output, prompt - 1), Submit("b", min(5, prompt), min(9, output)), Submit("c", 2, 1),
        Submit("d", prompt, output, prompt - 1, output - 1 if config.grammar else 0),
    )  # fmt: skip
    # The second stop shares its last accepted run with the cap, now and then: the first of the two must win.
    return submits, (Finish("b", min(4, output - 1)), Finish("d", max(0, output - 2)))


class Walk:
    """A random walk, then the loop that drains what is left; its last events are `idle`, `evict` of all, `idle`.

    It gives up far beyond what any order of launches needs, and then ends with live requests.
    """

    def __init__(self, seed: int, config: EngineConfig, length: int) -> None:
        """seed: fixes it. length: events of the walk itself."""
        self._random = Random(seed)
        self._temper = temper_of(self._random.getrandbits(21), config.max_reqs)
        self._left = length
        self._drain = Loop((), accept=mixed_runs(config))
        self._bound: int | None = None
        self._last: list[Event] = [Evict(max(config.pool_tokens, 1)), Idle()]

    def __call__(self, ledger: Ledger, receipt: Receipt | None) -> Event | None:
        """The next event."""
        if self._left > 0:
            self._left -= 1
            scene = Scene(ledger)
            found = offers(scene, self._temper)
            (kind,) = self._random.choices([kind for kind, _ in found], [weight for _, weight in found])
            return _DECODERS[kind](scene, self._random.getrandbits(ARGUMENT_BITS))
        if self._bound is None:
            self._bound = EVENTS_PER_TOKEN * sum(_tokens_left(ledger, rid) for rid in ledger.live()) + SPARE_EVENTS
        self._bound -= 1
        if self._bound < 0:
            return None
        event = self._drain(ledger, receipt)
        return event if event is not None else self._last.pop(0) if self._last else None


def _never_fits(ledger: Ledger, rid: str) -> bool:
    """Whether a waiting request needs more KV than there is, so that no engine could serve it."""
    asked, config = ledger.requests[rid], ledger.config
    return asked.submit.prompt_len + asked.settled + config.page_size >= config.pool_tokens


def _tokens_left(ledger: Ledger, rid: str) -> int:
    asked = ledger.requests[rid]
    return asked.submit.max_new - asked.settled + 1


class Loop:
    """A scheduler loop in its own order: submit everything, then launch what can be launched and settle behind it.

    Under overlap a result is settled one launch late. Prompts go in by chunks and together with the running rows where
    the configuration allows it. It ends with one `idle` when every request has finished.
    """

    def __init__(
        self,
        submits: Sequence[Submit],
        *,
        accept: Callable[[str, int], int],
        stops: Sequence[Finish] = (),
        disturb: Callable[[Ledger], Event | None] = lambda ledger: None,
    ) -> None:
        """accept: length asked for by rid and tokens decided so far. disturb: asked first, an event that interrupts."""
        self._first: list[Event] = [*submits, *stops]
        self._accept = accept
        self._disturb = disturb
        self._turned_away: set[str] = set()
        self._wait = False  # nothing could be launched: a result has to be settled first
        self._idled = False

    def __call__(self, ledger: Ledger, receipt: Receipt | None) -> Event | None:
        """The next event."""
        if self._first:
            return self._first.pop(0)
        interruption = self._disturb(ledger)
        if interruption is not None:
            return interruption
        if receipt is not None and receipt.launch is not None:
            self._turned_away.difference_update(rid for rid, _prefix, _extend in receipt.admitted)
        if receipt is not None and (receipt.finished or receipt.retracted or receipt.settled is not None):
            self._turned_away.clear()
            self._wait = False
        if ledger.prepared is not None:
            self._wait = False
            pairs = [(rid, self._accept(rid, ledger.requests[rid].decided)) for rid in ledger.prepared]
            return Verify(tuple((rid, run) for rid, run in pairs if run > 1))
        launch = self._launch(ledger) if ledger.may_launch() and not self._wait else None
        if launch is not None:
            return launch
        if ledger.in_flight:
            return Settle()
        if self._idled:
            return None
        for rid in ledger.waiting():
            if _never_fits(ledger, rid) and not ledger.requests[rid].aborted:
                return Abort(rid)
        self._idled = not ledger.live()
        self._turned_away.clear()
        self._wait = False
        return Idle()

    def _launch(self, ledger: Ledger) -> Event | None:
        waiting = [rid for rid in ledger.waiting() if rid not in self._turned_away]
        if waiting:
            self._turned_away.add(waiting[0])  # asked once, until something is given back
            config = ledger.config
            chunk = max(config.page_size, SHORT_CHUNK) if config.chunked_prefill else 0
            return (Mix if config.mixed_chunk and ledger.running() else Prefill)(waiting[0], chunk)
        if ledger.running():
            self._wait = True  # unless it prepares something, the next step is a settle
            return Prepare()
        return None
