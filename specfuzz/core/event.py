"""The events: what a front end may ask of a scheduler, engine-neutral, in a closed set.

Host events run scheduler code to its end and only enqueue device work; `publish` and `advance` are the device's own
progress. Request ids are names, never indices, so that a trace survives changes of the code that wrote it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Submit:
    """Put a request into the waiting queue.

    prompt_len: tokens. max_new: cap on output tokens. shared_len: how many leading prompt tokens it has in common with
    every other request that shares (0 = none); see `language.prompt_tokens`. grammar: 0 = none, else the output is
    constrained to at most that many tokens, the last of which is the stop token.
    """

    rid: str
    prompt_len: int
    max_new: int
    shared_len: int = 0
    grammar: int = 0


@dataclass(frozen=True, slots=True)
class Prefill:
    """Admit a waiting (or chunked) request and launch EXTEND of at most n tokens; n = 0 means all that is left."""

    rid: str
    n: int = 0


@dataclass(frozen=True, slots=True)
class Mix:
    """Prefill `rid` (at most n tokens, 0 = all) and carry the running rows as one-token extends in one MIXED launch."""

    rid: str
    n: int = 0


@dataclass(frozen=True, slots=True)
class Prepare:
    """Merge the last extend, filter, check memory (may retract), reserve the next decode."""


@dataclass(frozen=True, slots=True)
class Verify:
    """Launch the prepared batch; accept: accepted tokens incl. the bonus by rid, a rid that is absent accepts 1."""

    accept: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """Device progress up to and including the publish of the oldest unpublished launch."""


@dataclass(frozen=True, slots=True)
class Advance:
    """Run at most `count` operations of one stream ("schedule", "forward", "copy", "d2h") that are ready."""

    stream: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Settle:
    """Process the oldest unsettled result on the host; waits for its copy."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Arm a stop token at output index `at` (0-based); it takes effect in the accept that covers it."""

    rid: str
    at: int


@dataclass(frozen=True, slots=True)
class Abort:
    """The engine's abort: a waiting request is dropped, a running one is finished at its next processed result."""

    rid: str


@dataclass(frozen=True, slots=True)
class Retract:
    """Release a running request, reset it and put it back into the waiting queue."""

    rid: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict at least n tokens (or all that can be) from the prefix tree."""

    n: int


@dataclass(frozen=True, slots=True)
class Idle:
    """Settle everything, drain every stream, run the idle checks."""


Event = Submit | Prefill | Mix | Prepare | Verify | Publish | Advance | Settle | Finish | Abort | Retract | Evict | Idle

#: Every event class by the verb that the notation and the JSON form use.
EVENT_TYPES: dict[str, type[Event]] = {
    "submit": Submit,
    "prefill": Prefill,
    "mix": Mix,
    "prepare": Prepare,
    "verify": Verify,
    "publish": Publish,
    "advance": Advance,
    "settle": Settle,
    "finish": Finish,
    "abort": Abort,
    "retract": Retract,
    "evict": Evict,
    "idle": Idle,
}

VERBS: dict[type[Event], str] = {event_type: verb for verb, event_type in EVENT_TYPES.items()}

#: The streams that `advance` may name; see gpu/.
STREAMS = ("schedule", "forward", "copy", "d2h")


def rid_of(event: Event) -> str | None:
    """The request that the event names, or None."""
    return getattr(event, "rid", None)
