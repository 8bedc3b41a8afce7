"""The closed sets that name where and when a fact holds: clocks, phases, points, scopes and owners."""

from __future__ import annotations

from enum import StrEnum


class Clock(StrEnum):
    """Which of the three clocks a fact is read on."""

    HOST = "host"  # settled past: Req.output_ids, kv_committed_len, kv_allocated_len
    DEVICE = "device"  # executing present: seq_lens, KV content, draft state
    RELAY = "relay"  # safe future: FutureMap rows


class Phase(StrEnum):
    """Where one request stands between two host events."""

    WAITING = "waiting"
    EXTENDING = "extending"  # an extend result of this request is not settled yet
    STEADY = "steady"  # in the running set, nothing of it in flight, nothing prepared
    PREPARED = "prepared"  # in a prepared, unlaunched decode batch
    IN_FLIGHT = "in-flight"  # a decode is launched and its frontier is not published
    PUBLISHED = "published"  # a decode is published and not settled
    MIXED_TAIL = "mixed-tail"  # rides a MIXED launch as a one-token extend
    DEAD_IN_FLIGHT = "dead-in-flight"  # finished or retracted while a launch still carries it
    RETRACTED = "retracted"
    FINISHED = "finished"


class Point(StrEnum):
    """At which program point an oracle looks."""

    AFTER_EVENT = "after-event"
    WORKER_ENTRY = "worker-entry"
    WORKER_EXIT = "worker-exit"
    IDLE = "idle"


class Scope(StrEnum):
    """What one application of an oracle speaks about."""

    REQUEST = "request"
    BATCH = "batch"
    POOL = "pool"
    RUN = "run"


class Owner(StrEnum):
    """Who must be fixed when a rule breaks (not who noticed)."""

    SCHEDULER = "scheduler"
    RESULT_PROCESSOR = "result_processor"
    ISOLATION = "isolation"
    FUTURE_MAP = "future_map"
    SPEC_WORKER = "spec_worker"
    REQ_TO_TOKEN_POOL = "req_to_token_pool"
    KV_ALLOCATOR = "kv_allocator"
    KV_POOL = "kv_pool"
    RADIX_CACHE = "radix_cache"
    WINDOW_POOL = "window_pool"
    RECURRENT_STATE = "recurrent_state"
    GRAMMAR = "grammar"
    SAMPLER = "sampler"
    KERNEL = "kernel"
    RECORDER = "recorder"
