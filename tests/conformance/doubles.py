"""Systems that break one clause of the contract each: the reference engine behind an adapter with one bad habit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Abort, Event, Evict, Prefill, Prepare, Retract, Submit, Verify
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import ConfigError, EngineFault
from specfuzz.mutants import MUTANTS
from specfuzz.systems.reference import ReferenceSystem

PLAIN = EngineConfig()
PAGED, SYNC, FLAT = PLAIN.with_(page_size=4), PLAIN.with_(overlap=False), PLAIN.with_(radix=False)
#: Two rows and hardly more KV than one request needs: prefills are refused, rows are retracted.
TIGHT = PLAIN.with_(num_pages=60, max_reqs=2)


@dataclass(frozen=True, slots=True)
class Double:
    """clause: the one that must fail; open: the double; config: the only one that is run."""

    clause: str
    open: Callable[[], System]
    config: EngineConfig = PLAIN


DOUBLES: list[Double] = []


def breaks(clause: str, config: EngineConfig = PLAIN) -> Callable[[type[ReferenceSystem]], type[ReferenceSystem]]:
    """Note the decorated class as a double for that clause."""

    def note(double: type[ReferenceSystem]) -> type[ReferenceSystem]:
        DOUBLES.append(Double(clause, double, config))
        return double

    return note


def mutated(clause: str, mutant: str, config: EngineConfig = PLAIN) -> None:
    """A planted bug of the reference breaks that clause."""
    patch = MUTANTS.get(mutant).patch
    DOUBLES.append(Double(clause, lambda: ReferenceSystem(patch=patch), config))


# ------------------------------------------------------------------------------------------------------- lifecycle
@breaks("capabilities-cover-the-config", SYNC)
class ClaimsOverlapAlways(ReferenceSystem):
    def capabilities(self, config: EngineConfig) -> Capability:
        return super().capabilities(config) | Capability.OVERLAP


@breaks("capabilities-cover-the-config")
class RefusesWithoutAReason(ReferenceSystem):
    def capabilities(self, config: EngineConfig) -> Capability:
        if config.page_size > 1:
            raise ConfigError("no.")
        return super().capabilities(config)


@breaks("capabilities-cover-the-config")
class StartsWhatItRefuses(ReferenceSystem):
    def capabilities(self, config: EngineConfig) -> Capability:
        if config.page_size > 1 and not self.starting:
            raise ConfigError(f"`page_size`={config.page_size} does not fit `system`=double.")
        return super().capabilities(config)

    starting = False

    def reset(self, config: EngineConfig) -> None:
        self.starting = True
        super().reset(config)
        self.starting = False


@breaks("capabilities-change-nothing")
class DrainsWhenAsked(ReferenceSystem):
    def capabilities(self, config: EngineConfig) -> Capability:
        if hasattr(self, "device") and hasattr(self, "watcher"):
            self.device.drain()
        return super().capabilities(config)


@breaks("capabilities-change-nothing")
class ForgetsWhatItSees(ReferenceSystem):
    asked = 0

    def capabilities(self, config: EngineConfig) -> Capability:
        self.asked += 1
        return super().capabilities(config) & ~(Capability.TREE_VIEW if self.asked % 3 else Capability.NONE)


@breaks("reset-starts-afresh")
class CountsOn(ReferenceSystem):
    def reset(self, config: EngineConfig) -> None:
        count = self.watcher.count if hasattr(self, "watcher") else 0
        super().reset(config)
        self.watcher.count = count


@breaks("two-instances-agree")
class KnowsItsNumber(ReferenceSystem):
    opened = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        KnowsItsNumber.opened += 1
        self.number = KnowsItsNumber.opened

    def apply(self, event: Event) -> Receipt:
        return replace(super().apply(event), executed=self.number)


@breaks("two-instances-agree")
class RunsAlone(ReferenceSystem):
    opened = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        RunsAlone.opened += 1
        self.number = RunsAlone.opened

    def apply(self, event: Event) -> Receipt:
        if self.number > 1:
            raise EngineFault("another one runs already")
        return super().apply(event)


@breaks("close-twice-is-once")
class ClosesOnce(ReferenceSystem):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


# --------------------------------------------------------------------------------------------------------- looking
@breaks("looking-changes-nothing")
class DrainsBehindALook(ReferenceSystem):
    def snapshot(self) -> Snapshot:
        seen = super().snapshot()
        self.device.drain()
        return seen


@breaks("a-look-never-synchronises")
class DrainsBeforeALook(ReferenceSystem):
    def snapshot(self) -> Snapshot:
        self.device.drain()
        return super().snapshot()


class Showing(ReferenceSystem):
    """Shows something else than it sees."""

    def snapshot(self) -> Snapshot:
        return self.shown(super().snapshot())

    def shown(self, seen: Snapshot) -> Snapshot:
        raise NotImplementedError


@breaks("snapshots-are-plain-data")
class ShowsAnEngineObject(Showing):
    def shown(self, seen: Snapshot) -> Snapshot:
        return replace(seen, waiting=tuple(self.scheduler.waiting_queue))  # type: ignore[arg-type]


@breaks("snapshots-are-plain-data")
class ShowsALiveList(Showing):
    def shown(self, seen: Snapshot) -> Snapshot:
        return replace(seen, queue=list(seen.queue))  # type: ignore[arg-type]


@breaks("snapshots-never-change-later")
class ShowsOneDictionary(Showing):
    def reset(self, config: EngineConfig) -> None:
        self.known: dict[str, Any] = {}
        super().reset(config)

    def shown(self, seen: Snapshot) -> Snapshot:
        self.known.update(seen.reqs)
        return replace(seen, reqs=self.known)


# -------------------------------------------------------------------------------------------------------- receipts
class Telling(ReferenceSystem):
    """Tells something else than what happened."""

    def apply(self, event: Event) -> Receipt:
        return self.told(event, super().apply(event))

    def told(self, event: Event, receipt: Receipt) -> Receipt:
        raise NotImplementedError


@breaks("every-legal-event-is-answered")
class RaisesAnError(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        if isinstance(event, Evict):
            raise KeyError(event.n)
        return receipt


@breaks("every-legal-event-is-answered")
class Faults(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        if isinstance(event, Abort):
            raise EngineFault("IndexError: pop from an empty list")
        return receipt


@breaks("every-legal-event-is-answered", TIGHT)
class RefusesWithoutAWord(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        return replace(receipt, refused="") if receipt.refused else receipt


@breaks("every-legal-event-is-answered")
class InventsRequests(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        return replace(receipt, finished=(("nobody", "stop", 1),)) if isinstance(event, Evict) else receipt


@breaks("every-legal-event-is-answered")
class DoesNotStart(ReferenceSystem):
    def reset(self, config: EngineConfig) -> None:
        self.capabilities(config)
        raise EngineFault("the engine process died", kind="crash")


@breaks("every-legal-event-is-answered")
class RefusesAtReset(ReferenceSystem):
    def reset(self, config: EngineConfig) -> None:
        raise ConfigError(f"`page_size`={config.page_size} does not fit `system`=double.")


@breaks("a-refusal-changes-nothing", TIGHT)
class TicksWhenItRefuses(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        if receipt.refused and isinstance(event, Prefill):
            self.reqs[event.rid].decode_batch_idx += 1
        return receipt


@breaks("a-refusal-changes-nothing", TIGHT)
class RefusesAndSaysMore(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        return replace(receipt, evicted=3) if receipt.refused else receipt


@breaks("launches-are-numbered-in-order")
class NumbersFromZero(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        return receipt if receipt.launch is None else replace(receipt, launch=receipt.launch - 1)


mutated("launches-are-numbered-in-order", "newest-result-first")


@breaks("every-request-is-shown")
class HidesTheFinished(Showing):
    def shown(self, seen: Snapshot) -> Snapshot:
        return replace(seen, reqs={rid: req for rid, req in seen.reqs.items() if not req.finished})


@breaks("every-request-is-shown")
class HidesTheQueue(Showing):
    def shown(self, seen: Snapshot) -> Snapshot:
        return replace(seen, waiting=())


@breaks("emitted-is-the-new-output")
class EmitsOneTokenLess(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        return replace(receipt, emitted=tuple((rid, tokens[:1]) for rid, tokens in receipt.emitted))


@breaks("finished-is-shown")
class FinishesByLengthOnly(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        return replace(receipt, finished=tuple((rid, "length", length) for rid, _reason, length in receipt.finished))


@breaks("retracted-is-shown", TIGHT)
class CountsNoRetraction(Showing):
    def shown(self, seen: Snapshot) -> Snapshot:
        return replace(seen, reqs={rid: replace(req, retraction_count=0) for rid, req in seen.reqs.items()})


mutated("retracted-is-shown", "retract-keeps-committed")


@breaks("batches-are-shown")
class PreparesInAnotherOrder(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        return replace(receipt, rows=receipt.rows[::-1]) if isinstance(event, Prepare) else receipt


# ----------------------------------------------------------------------------------------------------------- views
@breaks("claimed-views-are-always-there")
class ShowsTheRelayWhenBusy(Showing):
    def shown(self, seen: Snapshot) -> Snapshot:
        return seen if seen.queue else replace(seen, relay=None)


@breaks("unclaimed-views-are-absent")
class ShowsWhatItDoesNotClaim(ReferenceSystem):
    def capabilities(self, config: EngineConfig) -> Capability:
        return super().capabilities(config) & ~Capability.RELAY_VIEW


def shows(clause: str, change: Callable[[Snapshot], dict[str, Any]], config: EngineConfig = PLAIN) -> None:
    """A view that is there and always empty."""

    class Emptied(Showing):
        def shown(self, seen: Snapshot) -> Snapshot:
            return replace(seen, **change(seen))

    DOUBLES.append(Double(f"claimed-{clause}-is-real", Emptied, config))


def claims(flag: Capability, config: EngineConfig) -> None:
    """An ability that the configuration rules out."""

    class Claiming(ReferenceSystem):
        def capabilities(self, config: EngineConfig) -> Capability:
            return super().capabilities(config) | flag

    DOUBLES.append(Double(f"claimed-{(flag.name or '').lower().replace('_', '-')}-is-real", Claiming, config))


def without_device(**changes: Any) -> Callable[[Snapshot], dict[str, Any]]:
    return lambda seen: {"device": replace(seen.device, **changes) if seen.device else None}


def without_extras(seen: Snapshot) -> dict[str, Any]:
    return {
        "launches": tuple(
            view if view.entry is None else replace(view, entry=replace(view.entry, topk_index=(), hidden=()))
            for view in seen.launches
        )
    }


shows("relay-view", lambda seen: {"relay": replace(seen.relay, rows={}) if seen.relay else None})
shows("device-view", without_device(rows={}))
shows("launch-view", lambda seen: {"launches": ()})
shows("content-view", without_device(target_v1=(7,) * 129))
shows("tree-view", lambda seen: {"pool": replace(seen.pool, cached=())})
shows("write-records", lambda seen: {"writes": ()})
shows("race-check", lambda seen: {"races": None})
shows("metrics-view", lambda seen: {"metrics": replace(seen.metrics, spec_num_forward_ct=0) if seen.metrics else None})
shows("lazy-device", without_device(pending=0))
shows("draft-kv", without_device(draft_v1=None))
shows("draft-extras", without_extras)
claims(Capability.OVERLAP, SYNC)
claims(Capability.RADIX, FLAT)
claims(Capability.PAGED, PLAIN)
claims(Capability.MIXED_CHUNK, PLAIN)
claims(Capability.CHUNKED_PREFILL, PLAIN)
claims(Capability.TREE, PLAIN)
claims(Capability.GRAMMAR, PLAIN)
shows(
    "grammar-overlap",
    lambda seen: {"launches": tuple(replace(view, grammar_advanced=False) for view in seen.launches)},
    PLAIN.with_(grammar=True),
)


@breaks("claimed-speculative-is-real")
class AcceptsOneAtATime(ReferenceSystem):
    def apply(self, event: Event) -> Receipt:
        return super().apply(Verify() if isinstance(event, Verify) else event)


# ------------------------------------------------------------------------------------------------ texts and the end
@breaks("text-is-plain-decoding")
class ReadsAnotherPrompt(ReferenceSystem):
    def apply(self, event: Event) -> Receipt:
        if isinstance(event, Submit):
            super().apply(replace(event, shared_len=0))
            return Receipt()
        return super().apply(event)


mutated("text-is-plain-decoding", "stash-dropped")
mutated("speculation-changes-no-text", "reserve-1x")


@breaks("overlap-changes-no-text")
class SharesNothingUnderOverlap(ReferenceSystem):
    def apply(self, event: Event) -> Receipt:
        if isinstance(event, Submit) and self.config.overlap:
            event = replace(event, shared_len=0)
        return super().apply(event)


@breaks("resuming-changes-no-text")
class CorruptsWhatItRetracts(Telling):
    def told(self, event: Event, receipt: Receipt) -> Receipt:
        if isinstance(event, Retract) and receipt.retracted:
            self.reqs[event.rid].output_ids[-1] += 1
        return receipt


@breaks("batch-order-changes-no-text")
class ReadsTheFirstRequestAnew(ReferenceSystem):
    def apply(self, event: Event) -> Receipt:
        if isinstance(event, Submit) and not self.reqs:
            event = replace(event, shared_len=0)
        return super().apply(event)


@breaks("draining-ends")
class AdmitsOnlyOnce(ReferenceSystem):
    def apply(self, event: Event) -> Receipt:
        if isinstance(event, Prefill) and self.reqs[event.rid].retraction_count:
            return Receipt(refused="it had its turn")
        return super().apply(event)


mutated("idle-frees-everything", "over-allocation-leaked")


mutated("idle-frees-everything", "lock-leaked")
