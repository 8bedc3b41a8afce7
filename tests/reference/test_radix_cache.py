"""The prefix tree: match, insert, split, lock and evict, by example and against a dictionary of pages."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfuzz.core.config import EngineConfig
from specfuzz.gpu import open_device
from specfuzz.reference.allocation import Pools
from specfuzz.reference.kv_allocator import TokenToKVPoolAllocator
from specfuzz.reference.radix_cache import RadixCache
from specfuzz.reference.req import Req
from specfuzz.reference.req_to_token_pool import ReqToTokenPool

PAGES = 300


@dataclass
class Cache:
    """A tree with its pools; `start` prefills a request and hands it to the tree, `end` releases it."""

    page_size: int = 1
    is_eagle: bool = False
    disable: bool = False

    def __post_init__(self) -> None:
        device = open_device("cpu", check_races=False)
        algorithm = "EAGLE" if self.is_eagle else "NONE"
        config = EngineConfig(algorithm=algorithm, page_size=self.page_size, num_pages=PAGES, max_reqs=30)
        self.table = ReqToTokenPool(config.max_reqs, config.row_width, device)
        self.allocator = TokenToKVPoolAllocator(PAGES, self.page_size)
        self.tree = RadixCache(
            self.table, self.allocator, page_size=self.page_size, is_eagle=self.is_eagle, disable=self.disable
        )
        self.pools = Pools(config, self.table, self.allocator, self.tree)

    def start(self, tokens: tuple[int, ...]) -> Req:
        req = Req("r", tokens, 9)
        req.prefix_len, node = self.tree.match_prefix(tokens[:-1])
        req.kv.cache_protected_len = req.prefix_len
        self.tree.lock(req, node)
        self.pools.alloc_for_extend(req, len(tokens))
        self.tree.checkpoint(req, len(tokens))
        return req

    def end(self, req: Req) -> None:
        self.pools.release_kv_cache(req, checkpoint=True)

    def remember(self, *texts: tuple[int, ...]) -> None:
        """Cache these texts and hold none of them."""
        for text in texts:
            self.end(self.start(text))

    def matched(self, tokens: tuple[int, ...]) -> int:
        return self.tree.match_prefix(tokens)[0]

    def row(self, req: Req, end: int) -> list[int]:
        return self.table.read(req.kv.req_pool_idx or 0, 0, end)


# ---------------------------------------------------------------------------------------------------------- by example


@pytest.mark.parametrize(
    ("page_size", "is_eagle", "matched"),
    [(1, False, 5), (1, True, 4), (4, False, 4), (4, True, 4)],
)
def test_a_match_is_the_longest_cached_prefix_in_whole_pages(page_size: int, is_eagle: bool, matched: int) -> None:
    cache = Cache(page_size, is_eagle)
    cache.remember((1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert cache.matched((1, 2, 3, 4, 5, 77)) == matched


def test_with_bigram_keys_a_slot_is_shared_only_if_the_next_token_agrees() -> None:
    cache = Cache(is_eagle=True)
    cache.remember((1, 2, 3, 4))
    assert cache.matched((1, 2, 9)) == 1


def test_a_tree_that_is_disabled_keeps_nothing() -> None:
    cache = Cache(disable=True)
    cache.remember((1, 2, 3, 4))
    assert cache.matched((1, 2, 3, 4)) == 0
    assert cache.allocator.available_size() == PAGES


def test_the_second_of_two_equal_texts_is_rewritten_to_the_slots_of_the_first() -> None:
    cache = Cache()
    first = Req("first", (1, 2, 3, 4), 9)
    second = Req("second", (1, 2, 3, 4), 9)
    for req in (first, second):  # both prefilled before either is cached
        cache.tree.lock(req, cache.tree.root)
        cache.pools.alloc_for_extend(req, 4)
    used = cache.allocator.available_size()
    cache.tree.checkpoint(first, 4)
    cache.tree.checkpoint(second, 4)
    assert cache.row(second, 4) == cache.row(first, 4)
    assert cache.allocator.available_size() == used + 4


def test_a_split_keeps_the_lock_of_both_halves() -> None:
    cache = Cache()
    long = cache.start((1, 2, 3, 4, 5, 6))
    cache.remember((1, 2, 3, 9))
    assert cache.tree.protected_size == 6 and cache.tree.evictable_size == 1
    cache.end(long)
    assert cache.tree.protected_size == 0 and cache.tree.evictable_size == 7


def test_what_is_locked_is_not_evicted() -> None:
    cache = Cache()
    held = cache.start((1, 2, 3))
    cache.remember((1, 2, 8), (7, 7))
    assert cache.tree.evict(100) == 3
    assert cache.matched(held.origin_input_ids) == 3


def test_the_least_recently_used_leaf_goes_first() -> None:
    cache = Cache()
    cache.remember((1, 1), (2, 2), (3, 3))
    cache.matched((1, 1))
    cache.tree.evict(1)
    assert [cache.matched(text) for text in ((1, 1), (2, 2), (3, 3))] == [2, 0, 2]


def test_eviction_drops_an_output_before_the_prompt_that_it_grew_on() -> None:
    cache = Cache()
    req = cache.start((1, 2, 3))
    req.output_ids = [4, 5, 6]
    req.kv.kv_committed_len = req.kv.kv_allocated_len = 5
    slots = cache.allocator.alloc_extend(3, 5, cache.row(req, 3)[-1])
    assert slots is not None
    cache.table.write([(req.kv.req_pool_idx or 0, 3, slots)])
    cache.end(req)
    assert cache.tree.evict(1) == 2
    assert cache.matched((1, 2, 3, 4, 5)) == 3


def test_evict_to_free_tokens_evicts_no_more_than_is_short() -> None:
    cache = Cache()
    cache.remember((1, 2), (3, 4))
    cache.tree.evict_to_free_tokens(PAGES - 3)
    assert cache.tree.evicted_tokens == 2


# --------------------------------------------------------------------------------------------- against a naive model

texts = st.lists(st.integers(0, 2), min_size=2, max_size=10).map(tuple)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("start"), texts),
        st.tuples(st.just("end"), st.integers(0, 5)),
        st.tuples(st.just("look"), texts),
        st.tuples(st.just("evict"), st.integers(1, 12)),
    ),
    max_size=24,
)


class Naive:
    """What should be cached: the slots of a page by the token ids that lead to its end (and one more with bigrams)."""

    def __init__(self, page_size: int, is_eagle: bool) -> None:
        self.page_size, self.ahead = page_size, int(is_eagle)
        self.pages: dict[tuple[int, ...], tuple[int, ...]] = {}

    def ends(self, tokens: tuple[int, ...]) -> list[int]:
        return list(range(self.page_size, len(tokens) - self.ahead + 1, self.page_size))

    def matched(self, tokens: tuple[int, ...]) -> int:
        length = 0
        for end in self.ends(tokens):
            if tokens[: end + self.ahead] not in self.pages:
                break
            length = end
        return length

    def insert(self, tokens: tuple[int, ...], row: list[int]) -> None:
        for end in self.ends(tokens):
            self.pages.setdefault(tokens[: end + self.ahead], tuple(row[end - self.page_size : end]))

    def slots(self, tokens: tuple[int, ...]) -> list[int]:
        return [slot for end in self.ends(tokens) for slot in self.pages.get(tokens[: end + self.ahead], ())]


def cached(cache: Cache) -> dict[tuple[int, ...], tuple[int, ...]]:
    """The tree's content in the form of the naive model."""
    page, found = cache.page_size, {}
    for keys, slots in cache.tree.paths():
        tokens = (*(a for a, _ in keys), keys[-1][1]) if cache.is_eagle else keys
        for end in range(page, len(slots) + 1, page):
            found[tokens[: end + int(cache.is_eagle)]] = tuple(slots[end - page : end])
    return found


@settings(max_examples=60)
@given(st.sampled_from([1, 4]), st.booleans(), operations)
def test_the_tree_agrees_with_a_dictionary_of_pages(
    page_size: int, is_eagle: bool, steps: list[tuple[str, object]]
) -> None:
    cache, naive = Cache(page_size, is_eagle), Naive(page_size, is_eagle)
    live: list[Req] = []
    for verb, argument in steps:
        if verb == "start":
            tokens = argument
            assert isinstance(tokens, tuple)
            req = cache.start(tokens)
            naive.insert(tokens, cache.row(req, len(tokens)))
            assert cache.row(req, req.kv.cache_protected_len) == naive.slots(tokens)
            live.append(req)
        elif verb == "end" and live:
            assert isinstance(argument, int)
            cache.end(live.pop(argument % len(live)))
        elif verb == "look":
            assert isinstance(argument, tuple)
            assert cache.matched(argument) == naive.matched(argument)
        elif verb == "evict":
            assert isinstance(argument, int)
            before, size = cache.tree.evictable_size, len(naive.pages)
            evicted = cache.tree.evict(argument)
            naive.pages = {key: naive.pages[key] for key in cached(cache)}
            assert evicted == (size - len(naive.pages)) * page_size
            assert min(argument, before) <= evicted <= before
        protected = {
            key
            for req in live
            for end in naive.ends(req.origin_input_ids)
            if (key := req.origin_input_ids[: end + naive.ahead])
        }
        assert protected <= naive.pages.keys()  # what a live request holds is never evicted
        assert cached(cache) == naive.pages
        assert cache.tree.protected_size == len(protected) * page_size
        assert cache.tree.evictable_size == (len(naive.pages) - len(protected)) * page_size
        of_tree = {slot // page_size for slots in naive.pages.values() for slot in slots}
        of_requests = {
            slot // page_size
            for req in live
            for slot in cache.row(req, req.kv.kv_allocated_len)[req.kv.cache_protected_len :]
        }
        assert not of_tree & of_requests
        assert sorted([*cache.allocator.free_pages, *of_tree, *of_requests]) == list(range(1, PAGES + 1))
