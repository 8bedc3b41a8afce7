"""Hypothesis strategies, plural nouns: rolls (what the machine's rules draw), configurations, parts of events."""

from __future__ import annotations

from hypothesis import strategies as st

from specfuzz.core.config import PAGE_SIZES, EngineConfig
from specfuzz.core.event import Submit
from specfuzz.core.legality import Ledger
from specfuzz.state_machine.decoding import ARGUMENT_BITS, submit_of
from specfuzz.state_machine.scenes import Scene

KIND_BITS = 8
#: One draw per step: KIND_BITS choose the kind of event, ARGUMENT_BITS its arguments.
ROLL_BITS = KIND_BITS + ARGUMENT_BITS

#: Rolls start far beyond the integers that Hypothesis favours: it draws some integers from pools of special constants,
#: one of them collected from whatever local modules are imported, and others with a bias to small ones. Out here every
#: roll is equally likely, and a seed means the same events in a checkout, in a wheel and next to other modules.
FIRST_ROLL = 3 << 70
LAST_ROLL = FIRST_ROLL + (1 << ROLL_BITS) - 1


def rolls() -> st.SearchStrategy[int]:
    """Integers in [FIRST_ROLL, LAST_ROLL]; subtract FIRST_ROLL, and 0 is the plainest choice."""
    return _ROLLS


_ROLLS = st.integers(FIRST_ROLL, LAST_ROLL)


def submits(config: EngineConfig) -> st.SearchStrategy[Submit]:
    """Requests that fit the configuration, as the machine submits them."""
    scene = Scene(Ledger(config))
    return rolls().map(lambda roll: submit_of(scene, (roll - FIRST_ROLL) >> KIND_BITS))


def accept_patterns(rids: tuple[str, ...], max_accept: int) -> st.SearchStrategy[tuple[tuple[str, int], ...]]:
    """Accept lengths by rid in [1, max_accept]; 1 is written by leaving the rid out."""
    runs = st.tuples(*(st.integers(1, max_accept) for _ in rids))
    return runs.map(lambda drawn: tuple((rid, run) for rid, run in zip(rids, drawn, strict=True) if run > 1))


@st.composite
def engine_configs(draw: st.DrawFn, algorithms: tuple[str, ...] = ("EAGLE", "NONE")) -> EngineConfig:
    """Valid configurations with small pools; for tests. A campaign walks a cover instead."""
    page_size = draw(st.sampled_from(PAGE_SIZES))
    spec_steps = draw(st.integers(1, 4))
    context_len = 64 if page_size < 64 else 128
    enough = -(-(context_len + 2 * (spec_steps + 1)) // page_size) + 2
    return EngineConfig(
        algorithm=draw(st.sampled_from(algorithms)),
        overlap=draw(st.booleans()),
        page_size=page_size,
        spec_steps=spec_steps,
        draft_token_num=spec_steps + 1,
        num_pages=draw(st.integers(enough, 4 * enough)),
        max_reqs=draw(st.integers(1, 4)),
        context_len=context_len,
        radix=draw(st.booleans()),
    )
