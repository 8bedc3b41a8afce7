"""Both event loops, driven to the end without any adapter: the text is plain decoding's and nothing is left behind."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from random import Random

import pytest

from specfuzz.core.language import Continuation, prompt_tokens
from specfuzz.reference.req import Req
from specfuzz.reference.scheduler import Scheduler
from tests.reference.memory import open_engine

MOST_ITERATIONS = 400
#: Pages in which every request of these seeds fits alone, but not all at once.
TIGHT, TIGHT_TREE = 40, 66
#: Four branches of three levels, eight nodes.
TREE = {"algorithm": "EAGLE", "topk": 4, "draft_token_num": 8}


@dataclass
class Client:
    """The ingest callback of a loop: requests arrive over time, and every verify gets a script of wrong proposals.

    arrivals: (iteration, rid, prompt, shared, max_new, stop index or None).
    """

    engine: Scheduler
    arrivals: list[tuple[int, str, int, int, int, int | None]]
    seed: int
    reqs: dict[str, Req] = field(default_factory=dict)
    iteration: int = 0

    def __call__(self) -> bool:
        engine, self.iteration = self.engine, self.iteration + 1
        assert self.iteration < MOST_ITERATIONS, "the loop makes no progress"
        for due, rid, prompt_len, shared, max_new, stop_at in self.arrivals:
            if due == self.iteration:
                self.reqs[rid] = engine.add_request(rid, prompt_tokens(rid, prompt_len, shared), max_new)
                self.reqs[rid].stop_at = stop_at
        # By rid and iteration, so that both loops may ask in another order.
        engine.model_runner.draft_flip_at = {
            rid: Random(f"{self.seed} {rid} {self.iteration}").randint(0, engine.config.spec_steps) for rid in self.reqs
        }
        waiting = len(self.reqs) < len(self.arrivals) or any(not req.finished() for req in self.reqs.values())
        return waiting or bool(engine.result_queue)

    def texts(self) -> dict[str, list[int]]:
        return {rid: req.output_ids[: req.finished_len] for rid, req in self.reqs.items()}


def arrivals(seed: int) -> list[tuple[int, str, int, int, int, int | None]]:
    random = Random(seed)
    found = []
    for rid in "abcdef":
        prompt_len, max_new = random.randint(2, 20), random.randint(1, 18)
        stop_at = random.choice([None, random.randrange(max_new)])
        found.append((random.randint(1, 12), rid, prompt_len, random.randint(0, prompt_len), max_new, stop_at))
    return found


def drive(*, overlap: bool, seed: int, **fields: object) -> Client:
    engine = open_engine(overlap=overlap, **fields)
    client = Client(engine, arrivals(seed), seed)
    (engine.event_loop_overlap if overlap else engine.event_loop_normal)(client)
    engine.device.drain()
    return client


def plain_decoding(seed: int) -> dict[str, list[int]]:
    """What each request's client must see, from the definition of the language alone."""
    texts = {}
    for _, rid, prompt_len, shared, max_new, stop_at in arrivals(seed):
        text = Continuation(prompt_tokens(rid, prompt_len, shared))
        if stop_at is not None:
            text.arm_stop(prompt_len + stop_at)
        length = max_new if stop_at is None else stop_at + 1
        texts[rid] = [text.token(prompt_len + index) for index in range(length)]
    return texts


ENGINES = [
    pytest.param({"algorithm": algorithm, "page_size": page_size, "num_pages": pages, **more}, id=name)
    for algorithm in ("NONE", "EAGLE")
    for page_size, pages, more, name in (
        (1, 256, {}, f"{algorithm}-page-1"),
        (4, 64, {}, f"{algorithm}-page-4"),
        (16, 24, {}, f"{algorithm}-page-16"),
        (1, TIGHT, {}, f"{algorithm}-tight"),
        (4, 64, {"radix": False}, f"{algorithm}-no-tree"),
    )
] + [
    pytest.param({**TREE, "page_size": page_size, "num_pages": pages, **more}, id=f"EAGLE-topk-4-{name}")
    for page_size, pages, more, name in (
        (1, 256, {}, "page-1"),
        (4, 96, {}, "page-4"),
        (16, 72, {"spec_steps": 2, "draft_token_num": 21}, "page-16"),
        (1, TIGHT_TREE, {}, "tight"),
        (4, 40, {"topk": 2, "draft_token_num": 4}, "page-4-tight"),
    )
]


@pytest.mark.parametrize("overlap", [False, True], ids=["normal", "overlap"])
@pytest.mark.parametrize("fields", ENGINES)
def test_the_text_is_that_of_plain_decoding(fields: dict[str, object], overlap: bool) -> None:
    for seed in (1, 2):
        assert drive(overlap=overlap, seed=seed, **fields).texts() == dict(sorted(plain_decoding(seed).items()))


@pytest.mark.parametrize("overlap", [False, True], ids=["normal", "overlap"])
@pytest.mark.parametrize("fields", ENGINES)
def test_the_pools_are_whole_at_the_end(fields: dict[str, object], overlap: bool) -> None:
    engine = drive(overlap=overlap, seed=3, **fields).engine
    tree, allocator = engine.tree_cache, engine.allocator
    assert tree.protected_size == 0
    assert allocator.available_size() + tree.evictable_size == engine.config.pool_tokens
    tree.evict(engine.config.pool_tokens)
    assert sorted(allocator.free_pages) == list(range(1, engine.config.num_pages + 1))
    assert sorted(engine.req_to_token_pool.free_slots) == list(range(1, engine.config.max_reqs + 1))


@pytest.mark.parametrize("fields", [{"algorithm": "NONE"}, {"algorithm": "EAGLE"}, TREE], ids=["NONE", "EAGLE", "tree"])
def test_overlap_changes_no_text(fields: dict[str, object]) -> None:
    """Two different runs: another order of launches, another run of accept lengths."""
    normal, overlap = (drive(overlap=overlap, seed=4, **fields) for overlap in (False, True))
    assert normal.texts() == overlap.texts()


@pytest.mark.parametrize(
    ("pages", "fields"), [(TIGHT, {"algorithm": "EAGLE"}), (TIGHT_TREE, TREE)], ids=["EAGLE", "tree"]
)
def test_a_tight_pool_does_retract(pages: int, fields: dict[str, object]) -> None:
    """Otherwise the tests above say nothing about retraction."""
    client = drive(overlap=True, seed=2, page_size=1, num_pages=pages, **fields)
    assert sum(req.retraction_count for req in client.reqs.values()) > 0


@pytest.mark.parametrize("overlap", [False, True], ids=["normal", "overlap"])
def test_a_tree_emits_what_a_chain_emits_with_the_same_accept_lengths(overlap: bool) -> None:
    chain, tree = (drive(overlap=overlap, seed=5, num_pages=512, **fields) for fields in ({"algorithm": "EAGLE"}, TREE))
    assert chain.iteration == tree.iteration and chain.texts() == tree.texts()


def test_overlap_settles_one_launch_late() -> None:
    engine = open_engine(overlap=True)
    engine.add_request("a", prompt_tokens("a", 4), 6)
    depths: list[int] = []

    def ingest() -> bool:
        depths.append(len(engine.result_queue))
        return len(depths) < 4

    engine.event_loop_overlap(ingest)
    assert depths == [0, 1, 1, 1]


@pytest.mark.parametrize("loop", [Scheduler.event_loop_normal, Scheduler.event_loop_overlap])
def test_a_loop_fits_on_a_screen(loop: object) -> None:
    assert len(inspect.getsource(loop).splitlines()) <= 60  # type: ignore[arg-type]
