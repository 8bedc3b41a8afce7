"""Oracles: the rules, one file per owner; importing this package registers all of them and their reachable twins."""

from specfuzz.oracles import (
    future_map,
    isolation,
    kv_allocator,
    kv_pool,
    races,
    radix_cache,
    recorder,
    req_to_token_pool,
    result_processor,
    scheduler,
    scheduler_queue,
    spec_worker,
    statistics,
    twins,
)
from specfuzz.oracles.implications import IMPLICATIONS, roots_first

__all__ = [
    "IMPLICATIONS",
    "future_map",
    "isolation",
    "kv_allocator",
    "kv_pool",
    "races",
    "radix_cache",
    "recorder",
    "req_to_token_pool",
    "result_processor",
    "roots_first",
    "scheduler",
    "scheduler_queue",
    "spec_worker",
    "statistics",
    "twins",
]
