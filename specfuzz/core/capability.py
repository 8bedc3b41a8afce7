"""What a system (engine plus algorithm plus configuration) can do and what it lets an observer see."""

from __future__ import annotations

from enum import Flag, auto


class Capability(Flag):
    """Flags of one opened system; an oracle lists those it needs, a rule those without which it can't act."""

    NONE = 0
    # what the engine does
    SPECULATIVE = auto()  # a verify may accept more than one token
    DRAFT_KV = auto()  # the draft side keeps its own KV at the target's slots
    DRAFT_EXTRAS = auto()  # topk and hidden cross rounds in the relay
    TREE = auto()  # topk > 1
    OVERLAP = auto()  # results are processed one launch late
    MIXED_CHUNK = auto()
    CHUNKED_PREFILL = auto()
    GRAMMAR = auto()  # requests may be constrained
    GRAMMAR_OVERLAP = auto()  # a forward advances the FSM over what is still queued, so that both can overlap
    RADIX = auto()  # finished and prefilled requests are cached
    PAGED = auto()  # page_size > 1
    # what can be observed
    LAZY_DEVICE = auto()  # device work can be pending after a host event
    RELAY_VIEW = auto()
    DEVICE_VIEW = auto()
    LAUNCH_VIEW = auto()  # worker entry and exit are recorded
    CONTENT_VIEW = auto()  # KV cells can be read
    TREE_VIEW = auto()  # the cached slots can be walked
    WRITE_RECORDS = auto()  # who wrote an owned field is known
    RACE_CHECK = auto()  # a happens-before checker watches
    METRICS_VIEW = auto()  # the global acceptance counts can be read


#: What an observer needs to see; a missing one makes a verdict UNKNOWN, a missing ability makes it NOT_APPLICABLE.
OBSERVATIONS = (
    Capability.RELAY_VIEW
    | Capability.DEVICE_VIEW
    | Capability.LAUNCH_VIEW
    | Capability.CONTENT_VIEW
    | Capability.TREE_VIEW
    | Capability.WRITE_RECORDS
    | Capability.RACE_CHECK
    | Capability.METRICS_VIEW
)
