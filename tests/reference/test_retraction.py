"""Retraction under pressure: fewest outputs first, then the longest prompt; the last row is aborted, not retracted."""

from __future__ import annotations

from specfuzz.reference.req import Req
from specfuzz.reference.scheduler import Scheduler
from tests.reference.memory import admitted, open_engine

# rid, prompt, outputs: in order of submission.
ROWS = (("a", 4, 3), ("b", 6, 1), ("c", 4, 1), ("d", 5, 2))


def crowded(**fields: object) -> tuple[Scheduler, list[Req]]:
    """Four rows and no free page."""
    engine = open_engine(radix=False, **fields)
    reqs = [admitted(engine, *row) for row in ROWS]
    engine.allocator.free_pages.clear()
    return engine, reqs


def test_fewest_outputs_go_first_then_the_longest_prompt() -> None:
    engine, reqs = crowded()
    outcome = engine.retractor.retract_decode(reqs)
    assert [req.rid for req in outcome.retracted] == ["b", "c", "d"]
    assert [req.rid for req in outcome.kept] == ["a"] and not outcome.aborted


def test_retraction_stops_as_soon_as_the_rest_fits() -> None:
    engine, reqs = crowded(algorithm="NONE")
    outcome = engine.retractor.retract_decode(reqs)
    assert [req.rid for req in outcome.retracted] == ["b"]


def test_a_retracted_row_gives_everything_back() -> None:
    engine, reqs = crowded()
    engine.retractor.retract_decode(reqs)
    assert engine.allocator.available_size() == 6 + 4 + 6  # the KV of b, c and d
    assert engine.req_to_token_pool.available_size() == 3
    assert [req.rid for req in reqs if req.kv.holds_kv] == ["a"]


def test_a_last_row_that_fits_nowhere_is_aborted() -> None:
    engine, reqs = crowded()
    alone = reqs[1]  # gives 6 tokens back where a decode reserves 8
    outcome = engine.retractor.retract_decode([alone])
    assert [req.rid for req in outcome.aborted] == ["b"] and not outcome.kept
    assert alone.to_finish == "abort" and not alone.kv.holds_kv


def test_nothing_of_a_retracted_row_is_cached() -> None:
    engine = open_engine()
    req = admitted(engine, "a", 6, 1)
    engine.retractor.release_req(req, 0)
    assert engine.tree_cache.paths() == [] and engine.allocator.available_size() == engine.config.pool_tokens


def test_room_is_made_for_the_survivors_from_the_tree() -> None:
    engine = open_engine(num_pages=64)
    cached = admitted(engine, "cached", 30)
    engine.pools.release_kv_cache(cached, checkpoint=True)
    victim = admitted(engine, "a", 20, 1)
    assert engine.tree_cache.evictable_size > 0
    engine.retractor.release_req(victim, survivors=3)
    assert engine.allocator.available_size() >= 60
