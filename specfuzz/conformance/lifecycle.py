"""Clauses about a system as a whole: which configurations it takes, starting afresh, and being a function of events."""

from __future__ import annotations

import re
from dataclasses import fields

from specfuzz.conformance.clauses import Answer, Evidence, broken, clause, difference, holds, unjudged
from specfuzz.conformance.runs import Run, again
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import ConfigError, MissingPart, UnknownName

#: What a message may name besides a field of the configuration: the system that can't do it.
_FIELDS = {field.name for field in fields(EngineConfig)} | {"system"}
NO_ALGORITHM = "NO-SUCH-ALGORITHM"


def abilities_of(config: EngineConfig) -> dict[Capability, bool]:
    """Every ability that a configuration decides, and whether it asks for it."""
    return {
        Capability.SPECULATIVE: config.speculative,
        Capability.OVERLAP: config.overlap,
        Capability.RADIX: config.radix,
        Capability.PAGED: config.page_size > 1,
        Capability.MIXED_CHUNK: config.mixed_chunk,
        Capability.CHUNKED_PREFILL: config.chunked_prefill,
        Capability.GRAMMAR: config.grammar,
        Capability.TREE: config.speculative and config.topk > 1,
    }


def demanding_configs(base: EngineConfig) -> dict[str, EngineConfig]:
    """By field: the configuration with that field at a value that not every system can run."""
    tree = {"topk": 4, "spec_steps": 3, "draft_token_num": 8, "num_pages": max(base.num_pages, 128)}
    return {
        "overlap": base.with_(overlap=not base.overlap),
        "radix": base.with_(radix=not base.radix),
        "page_size": base.with_(page_size=4 if base.page_size == 1 else 1, num_pages=max(base.num_pages, 128)),
        "mixed_chunk": base.with_(mixed_chunk=not base.mixed_chunk),
        "chunked_prefill": base.with_(chunked_prefill=not base.chunked_prefill),
        "grammar": base.with_(grammar=not base.grammar),
        "topk": base.with_(**tree),
        "algorithm": base.with_(algorithm=NO_ALGORITHM, topk=1, draft_token_num=base.spec_steps + 1),
    }


@clause("capabilities-cover-the-config")
def capabilities_cover_the_config(evidence: Evidence) -> Answer:
    """Capabilities have exactly the abilities that the configuration asks for, or it is refused, naming both fields."""
    base, refused = evidence.configs[0], 0
    for field, config in {"": base, **demanding_configs(base)}.items():
        try:
            found = evidence.system.capabilities(config)
        except MissingPart:
            raise
        except Exception as error:
            wrong = _wrong_refusal(evidence, field, config, error)
            if wrong is not None:
                return broken(wrong)
            refused += 1
            continue
        if field == "algorithm":
            return broken(f"`algorithm`={NO_ALGORITHM} is accepted: there is no such algorithm")
        for flag, wanted in abilities_of(config).items():
            if wanted != (flag in found):
                word = "lack" if wanted else "have"
                return broken(f"{config.label()}, {field or 'base'}: the capabilities {word} {flag.name}: {found!r}")
    return holds(f"{len(demanding_configs(base)) + 1} configurations: {refused} refused, the others covered")


def _wrong_refusal(evidence: Evidence, field: str, config: EngineConfig, error: Exception) -> str | None:
    """What is wrong with the refusal of a configuration that differs from one that runs in `field`, or None."""
    value = getattr(config, field) if field else ""
    if field == "algorithm" and isinstance(error, UnknownName):
        return None if NO_ALGORITHM in str(error) else f"an unknown algorithm is refused without its name: {error}"
    if not isinstance(error, ConfigError):
        return f"`{field}`={value} raises {type(error).__name__} instead of ConfigError: {error}"
    named = set(re.findall(r"`(\w+)`", str(error))) & _FIELDS
    if field not in named or len(named) < 2:
        return f"`{field}`={value} is refused without naming two fields that clash: {error}"
    try:
        evidence.system.reset(config)
    except ConfigError:
        return None
    return f"`{field}`={value} has no capabilities, but reset starts an engine with it"


@clause("capabilities-change-nothing")
def capabilities_change_nothing(evidence: Evidence) -> Answer:
    """Asking for capabilities, of any configuration and at any time, gives the same answer and changes nothing."""
    first = evidence.runs[0]
    asked = [first.config, *demanding_configs(first.config).values()]
    answers = {repr(_answers(evidence, asked))}
    run = evidence.play(
        first.config, again(first.tried), beside=lambda: answers.add(repr(_answers(evidence, asked)))
    )  # fmt: skip
    if len(answers) > 1:
        return broken(f"the same configurations have different capabilities at different times: {sorted(answers)[:2]}")
    changed = difference(first, run)
    return broken(changed) if changed else holds(f"asked {len(asked)} times before each of {len(run.events)} events")


def _answers(evidence: Evidence, configs: list[EngineConfig]) -> list[str]:
    found = []
    for config in configs:
        try:
            found.append(repr(evidence.system.capabilities(config)))
        except Exception as error:  # which one is another clause's business
            found.append(type(error).__name__)
    return found


@clause("reset-starts-afresh")
def reset_starts_afresh(evidence: Evidence) -> Answer:
    """After reset, also in the middle of a round, an engine knows nothing: the same events go the same way."""
    for run in evidence.runs:
        start = run.start
        if start is None:
            return unjudged(f"{run.config.label()}: {run.stopped}")
        left = [
            name for name in ("reqs", "waiting", "running", "prepared", "queue", "launches") if getattr(start, name)
        ]
        if left:
            return broken(f"{run.config.label()}: right after reset the snapshot has {', '.join(left)}")
    first, other = evidence.runs[0], evidence.runs[-1]
    middle = _in_the_middle(other)
    evidence.play(other.config, again(other.events), most=middle)
    changed = difference(first, evidence.play(first.config, again(first.tried)))
    if changed:
        return broken(f"after a run of {other.config.label()} that ended in the middle of a round: {changed}")
    return holds(f"{len(first.events)} events went the same way after a reset in the middle of a round")


def _in_the_middle(run: Run) -> int:
    """Number of events after which the most work is unsettled, prepared and pending."""
    busiest, most = 0, -1
    for index, (_moment, ledger) in enumerate(run.steps()):
        load = 2 * len(ledger.in_flight) + (ledger.prepared is not None)
        if load > most:
            busiest, most = index + 1, load
    return busiest


@clause("two-instances-agree")
def two_instances_agree(evidence: Evidence) -> Answer:
    """Two instances that get the same events answer the same and share nothing."""
    if evidence.given is not None:
        return unjudged("an opened system was given: name a factory, and a second instance can be opened")
    first = evidence.runs[0]
    if first.stopped is not None:
        return unjudged(first.stopped)
    if evidence.slow:
        # It would take as long again as everything else, so the second one is opened when the first is gone.
        evidence.reopen()
        changed = difference(first, evidence.play(first.config, again(first.tried)))
        return broken(changed) if changed else holds(f"{len(first.events)} events, one instance after the other")
    second = evidence.open_system()
    left, receipts, states = iter(first.tried), list[Receipt](), list[Snapshot]()

    def step(event: Event) -> None:
        receipts.append(second.apply(event))
        states.append(second.snapshot())

    def advance_second() -> None:
        if not receipts:
            second.reset(first.config)
        step(next(left))

    try:
        run = evidence.play(first.config, again(first.tried), beside=advance_second)
    except MissingPart:
        raise
    except Exception as error:
        return broken(f"the second instance raised {type(error).__name__}: {error}")
    finally:
        second.close()
    changed = difference(first, run)
    if changed:
        return broken(f"beside a second instance the first one goes another way: {changed}")
    for index, moment in enumerate(first.moments):
        if receipts[index] != moment.receipt or hash(repr(states[index])) != moment.told:
            return broken(f"the second instance goes another way at event {index}: {receipts[index]}")
    return holds(f"{len(first.events)} events, applied to both in turn")


@clause("close-twice-is-once")
def close_twice_is_once(evidence: Evidence) -> Answer:
    """Closing frees everything, and closing again does nothing."""
    if evidence.given is not None:
        return unjudged("an opened system was given, which its owner closes")
    for time, close in (("first", evidence.close), ("second", evidence.system.close)):
        try:
            close()
        except Exception as error:
            return broken(f"the {time} close raised {type(error).__name__}: {error}")
    return holds("closed twice")


#: In the order in which they are judged; the last two replace or close the open instance, so they come behind the rest.
FIRST = (capabilities_cover_the_config, capabilities_change_nothing, reset_starts_afresh)
LAST = (two_instances_agree, close_twice_is_once)
