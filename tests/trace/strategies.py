"""Hypothesis strategies for events, receipts, configurations and whole traces, as the file format allows them."""

from __future__ import annotations

from hypothesis import strategies as st

from specfuzz.core.config import PAGE_SIZES, EngineConfig
from specfuzz.core.event import (
    STREAMS,
    Abort,
    Advance,
    Event,
    Evict,
    Finish,
    Idle,
    Mix,
    Prefill,
    Prepare,
    Publish,
    Retract,
    Settle,
    Submit,
    Verify,
)
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity

numbers = st.integers(0, 1_000_000)
small = st.integers(0, 20)
int64s = st.integers(-(2**63), 2**63 - 1)
any_rids = st.sampled_from(["a", "b", "req-0", "A.b_C-9", "z" * 64])
few_rids = st.sampled_from("abcd")
words = st.from_regex(r"[a-z][a-z0-9-]{0,20}", fullmatch=True)


def events(
    rids: st.SearchStrategy[str] = any_rids, sizes: st.SearchStrategy[int] = numbers
) -> st.SearchStrategy[Event]:
    return st.one_of(
        st.builds(Submit, rids, sizes, sizes, sizes),
        st.builds(Prefill, rids, sizes),
        st.builds(Mix, rids, sizes),
        st.just(Prepare()),
        st.builds(Verify, st.lists(st.tuples(rids, sizes), max_size=4).map(tuple)),
        st.just(Publish()),
        st.builds(Advance, st.sampled_from(STREAMS), sizes),
        st.just(Settle()),
        st.builds(Finish, rids, sizes),
        st.builds(Abort, rids),
        st.builds(Retract, rids),
        st.builds(Evict, sizes),
        st.just(Idle()),
    )


def _tuples(items: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(items, max_size=3).map(tuple)


def receipts() -> st.SearchStrategy[Receipt]:
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    maybe = st.none() | int64s
    return st.builds(
        Receipt,
        refused=st.none() | text,
        launch=maybe,
        mode=st.sampled_from(["", "EXTEND", "DECODE", "MIXED"]),
        rows=_tuples(any_rids),
        admitted=_tuples(st.tuples(any_rids, int64s, int64s)),
        retracted=_tuples(any_rids),
        dropped=_tuples(any_rids),
        skipped=st.booleans(),
        settled=maybe,
        emitted=_tuples(st.tuples(any_rids, _tuples(int64s))),
        finished=_tuples(st.tuples(any_rids, st.sampled_from(["stop", "length", "abort"]), maybe)),
        evicted=int64s,
        executed=int64s,
    )


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    steps = draw(st.integers(1, 5))
    return EngineConfig(
        algorithm=draw(st.sampled_from(["NONE", "EAGLE"])),
        overlap=draw(st.booleans()),
        page_size=draw(st.sampled_from(PAGE_SIZES)),
        spec_steps=steps,
        draft_token_num=steps + 1,
        num_pages=draw(st.integers(20, 200)),
        max_reqs=draw(st.integers(1, 8)),
        radix=draw(st.booleans()),
        mixed_chunk=draw(st.booleans()),
        chunked_prefill=draw(st.booleans()),
    )


def traces() -> st.SearchStrategy[Trace]:
    return st.builds(
        Trace,
        config=configs(),
        steps=st.lists(st.builds(TraceStep, event=events(), receipt=st.just(NOTHING) | receipts()), max_size=8).map(
            tuple
        ),
        system=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
        version=st.sampled_from(["", "0.1.0", "0.5.23"]),
        expected=st.none() | st.builds(Identity, words, words, words),
        seed=st.none() | int64s,
        note=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    )
