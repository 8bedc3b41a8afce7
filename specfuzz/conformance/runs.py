"""One recorded run of a system under test: every event, receipt and snapshot, and what ended it too early."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.legality import Ledger
from specfuzz.core.notation import format_event
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import EngineFault, MissingPart

#: Chooses the next event from what was asked for so far and the last receipt (None at the start); None ends the run.
Choose = Callable[[Ledger, Receipt | None], Event | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One applied event. looks: the snapshots taken right after it, without anything in between.

    told: hash of the first look's text when it was taken, 0 where nobody will compare.
    """

    event: Event
    receipt: Receipt
    before: Snapshot
    looks: tuple[Snapshot, ...]
    told: int = 0

    @property
    def after(self) -> Snapshot:
        """The first look, the one that a session judges."""
        return self.looks[0]


@dataclass(slots=True, kw_only=True)
class Run:
    """A run from reset on. start: the snapshot before the first event, None if there was none to be had.

    tried: the events, and behind them the one that stopped it.
    stopped: what the system raised or answered that nobody can go on from; None if nothing.
    """

    config: EngineConfig
    capabilities: Capability
    start: Snapshot | None = None
    moments: list[Moment] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tried: list[Event] = field(default_factory=list)
    stopped: str | None = None

    def steps(self) -> Iterator[tuple[Moment, Ledger]]:
        """Every moment with the ledger after it; the ledger is updated in place."""
        ledger = Ledger(self.config)
        for moment in self.moments:
            ledger.record(moment.event, moment.receipt)
            yield moment, ledger

    def ledger(self) -> Ledger:
        """What was asked for and answered in the whole run."""
        ledger = Ledger(self.config)
        for event, receipt in zip(self.events, self.receipts, strict=True):
            ledger.record(event, receipt)
        return ledger


def play(
    system: System,
    config: EngineConfig,
    choose: Choose,
    *,
    most: int,
    looks: int = 1,
    tell: bool = True,
    beside: Callable[[], object] | None = None,
) -> Run:
    """Reset the system and apply at most `most` chosen events; what isn't legal is passed over, as a session does.

    looks: snapshots after every event; with 0 the run keeps receipts only. tell: note what each first look says.
    beside: called before every event, to do what must make no difference. Raises ConfigError if the system can't run
    the configuration, and MissingPart.
    """
    capabilities = system.capabilities(config)
    run = Run(config=config, capabilities=capabilities)
    try:
        system.reset(config)
        before = run.start = system.snapshot()
    except MissingPart:
        raise
    except Exception as error:  # a ConfigError comes too late here: the capabilities were asked for before
        run.stopped = f"reset raised {_name(error)}"
        return run
    ledger, receipt = Ledger(config), None
    for _ in range(most):
        event = choose(ledger, receipt)
        if event is None:
            break
        if not ledger.admits(event):
            continue
        run.tried.append(event)
        if beside is not None:
            beside()
        try:
            receipt = system.apply(event)
            seen = tuple(system.snapshot() for _ in range(looks))
        except MissingPart:
            raise
        except Exception as error:  # whatever it is: the contract knows only EngineFault
            run.stopped = f"`{format_event(event)}` after {len(run.events)} events raised {_name(error)}"
            break
        try:
            ledger.record(event, receipt)
        except Exception as error:
            run.stopped = f"the receipt of `{format_event(event)}` makes no sense ({error!r}): {receipt}"
            break
        run.events.append(event)
        run.receipts.append(receipt)
        if seen:
            told = hash(repr(seen[0])) if tell else 0
            run.moments.append(Moment(event=event, receipt=receipt, before=before, looks=seen, told=told))
            before = seen[0]
    return run


def again(events: Sequence[Event]) -> Choose:
    """Chooses the same events once more."""
    left = iter(events)
    return lambda _ledger, _receipt: next(left, None)


def _name(error: Exception) -> str:
    foreign = "" if isinstance(error, EngineFault) else ", which is no EngineFault"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{foreign}: {text[:200]}"
