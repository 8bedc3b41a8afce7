"""The steps that make one event or one configuration simpler, as pure functions; the shrinker tries them in this order.

Every lowered form is strictly smaller in a well-founded order (numbers fall, pairs go, switches turn off), so that
repeated lowering ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from string import ascii_lowercase
from typing import Any

from specfuzz.core.config import PAGE_SIZES, EngineConfig
from specfuzz.core.event import Advance, Event, Evict, Finish, Idle, Mix, Prefill, Settle, Submit, Verify, rid_of
from specfuzz.errors import ConfigError

#: The least value that legality leaves to an argument, by event class and field.
LEAST: dict[type[Event], dict[str, int]] = {
    Submit: {"grammar": 0, "shared_len": 0, "prompt_len": 2, "max_new": 1},
    Prefill: {"n": 0},
    Mix: {"n": 0},
    Advance: {"count": 1},
    Finish: {"at": 0},
    Evict: {"n": 1},
}

#: Up to this distance every lower value is tried; beyond, distances by powers of two and one less.
EXHAUSTIVE = 64

DEFAULT = EngineConfig()


def lower_numbers(value: int, least: int) -> Iterator[int]:
    """Values in [least, value), the smallest first."""
    distance = value - least
    if distance <= EXHAUSTIVE:
        yield from range(least, value)
        return
    yield least
    step = 1
    while step < distance:
        yield least + step
        step *= 2
    yield value - 1


def coarse_numbers(value: int, least: int) -> Iterator[int]:
    """A few values in [least, value): the least, half the way, one less."""
    seen = set()
    for lower in (least, (least + value) // 2, value - 1):
        if least <= lower < value and lower not in seen:
            seen.add(lower)
            yield lower


def set_number(event: Event, name: str, value: int) -> Event:
    """The event with one argument changed; a shorter prompt shares no more, a shorter output is constrained to less."""
    changes: dict[str, Any] = {name: value}
    if isinstance(event, Submit) and name == "max_new":
        changes["grammar"] = min(event.grammar, value)
    if isinstance(event, Submit) and name == "prompt_len":
        changes["shared_len"] = min(event.shared_len, value)
    return replace(event, **changes)


def lower_accept(event: Verify) -> Iterator[Event]:
    """Verify with one accept entry less, or with one lower; an absent entry accepts 1."""
    if len(event.accept) > 1:
        yield Verify()
    for index, (rid, run) in enumerate(event.accept):
        yield Verify(event.accept[:index] + event.accept[index + 1 :])
        for lower in range(2, run):
            yield Verify((*event.accept[:index], (rid, lower), *event.accept[index + 1 :]))


def lowered(event: Event, numbers: Callable[[int, int], Iterator[int]]) -> Iterator[Event]:
    """The event in every simpler form: a humbler verb or one argument lower. numbers: which lower values of one."""
    if isinstance(event, Idle):
        yield Settle()  # an idle hides how much of it the bug needs
    if isinstance(event, Mix):
        yield Prefill(event.rid, event.n)
    if isinstance(event, Verify):
        yield from lower_accept(event)
    for name, least in LEAST.get(type(event), {}).items():
        for value in numbers(getattr(event, name), least):
            yield set_number(event, name, value)


def lowered_together(events: tuple[Event, ...]) -> Iterator[tuple[Event, ...]]:
    """All events that have the same value in one argument, lowered together (two prompts that share a prefix, say)."""
    for event_type, names in LEAST.items():
        for name, least in names.items():
            values = [getattr(event, name) for event in events if type(event) is event_type]
            for value in sorted({v for v in values if values.count(v) > 1 and v > least}):
                for lower in coarse_numbers(value, least):
                    yield tuple(
                        set_number(event, name, lower)
                        if type(event) is event_type and getattr(event, name) == value
                        else event
                        for event in events
                    )


def names_of(event: Event) -> tuple[str, ...]:
    """Every rid in the event."""
    if isinstance(event, Verify):
        return tuple(rid for rid, _run in event.accept)
    rid = rid_of(event)
    return () if rid is None else (rid,)


def without_rid(events: Iterable[Event], rid: str) -> tuple[Event, ...]:
    """The events without one request."""
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Verify):
            kept.append(Verify(tuple(pair for pair in event.accept if pair[0] != rid)))
        elif rid_of(event) != rid:
            kept.append(event)
    return tuple(kept)


def rids_in(events: Iterable[Event]) -> tuple[str, ...]:
    """Rids in order of first mention."""
    return tuple(dict.fromkeys(rid for event in events for rid in names_of(event)))


def plain_names() -> Iterator[str]:
    """a, b, …, z, aa, ab, …"""
    for size in range(1, 8):
        for letters in product(ascii_lowercase, repeat=size):
            yield "".join(letters)


def renamed(events: tuple[Event, ...], names: dict[str, str]) -> tuple[Event, ...]:
    """The events with every rid replaced by its new name."""

    def rename(event: Event) -> Event:
        if isinstance(event, Verify):
            return Verify(tuple((names.get(rid, rid), run) for rid, run in event.accept))
        rid = rid_of(event)
        changes: dict[str, Any] = {} if rid is None else {"rid": names.get(rid, rid)}
        return replace(event, **changes)

    return tuple(rename(event) for event in events)


#: What a configuration can be simplified in; the algorithm stays, because it belongs to the bug.
AXES = ("overlap", "page_size", "mixed_chunk", "chunked_prefill", "grammar", "radix", "needs_cpu_seq_lens", "topk",
        "spec_steps", "draft_token_num", "num_pages", "max_reqs", "context_len")  # fmt: skip
_SWITCHES = ("overlap", "mixed_chunk", "chunked_prefill", "grammar", "radix")
_LEAST_SIZE = {"num_pages": 1, "max_reqs": 1, "context_len": 8}


def simpler_configs(config: EngineConfig, axis: str) -> Iterator[EngineConfig]:
    """The configuration with one field simpler, the simplest first; what doesn't fit together is left out.

    Switches go off, page size and speculative shape fall. A default size of pool, rows or context is the simplest,
    since it says that size is no part of the bug; a size that must differ from it falls.
    """
    for change in _simpler(config, axis, getattr(config, axis)):
        with contextlib.suppress(ConfigError):
            yield config.with_(**change)


def _simpler(config: EngineConfig, axis: str, value: int) -> Iterator[dict[str, Any]]:
    if axis in _SWITCHES:
        yield from [{axis: False}] if value else []
    elif axis == "needs_cpu_seq_lens":
        yield from [{axis: True}] if not value else []
    elif axis == "page_size":
        yield from ({axis: size} for size in PAGE_SIZES if size < value)
    elif axis in _LEAST_SIZE:
        default = getattr(DEFAULT, axis)
        if value != default:
            yield {axis: default}
            yield from ({axis: v} for v in lower_numbers(value, _LEAST_SIZE[axis]) if v != default)
    elif axis == "topk":
        yield from ({axis: k, **_chain(config.spec_steps, k)} for k in range(1, value))
    elif axis == "spec_steps":
        yield from ({axis: k, **_chain(k, config.topk)} for k in range(1, value))
    else:
        yield from ({axis: k} for k in range(2, value))


def _chain(spec_steps: int, topk: int) -> dict[str, int]:
    """A chain's number of draft tokens follows from its steps."""
    return {"draft_token_num": spec_steps + 1} if topk == 1 else {}
