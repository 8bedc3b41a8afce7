"""Oracles: the rules, one file per owner; importing this package registers all of them and their reachable twins."""

from specfuzz.oracles import (
    cached_content,
    future_map,
    isolation,
    kv_allocator,
    kv_pool,
    races,
    radix_cache,
    recorder,
    relay_rows,
    req_to_token_pool,
    result_processor,
    scheduler,
    scheduler_queue,
    scheduler_requests,
    spec_worker,
    statistics,
    twins,
)
from specfuzz.oracles.implications import IMPLICATIONS, roots_first

__all__ = [
    "IMPLICATIONS",
    "cached_content",
    "future_map",
    "isolation",
    "kv_allocator",
    "kv_pool",
    "races",
    "radix_cache",
    "recorder",
    "relay_rows",
    "req_to_token_pool",
    "result_processor",
    "roots_first",
    "scheduler",
    "scheduler_queue",
    "scheduler_requests",
    "spec_worker",
    "statistics",
    "twins",
]
