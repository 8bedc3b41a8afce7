"""Rules of chains that also judge trees: there the relayed draft state is a seed per branch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specfuzz.core.draft_tree import right_branch, seeds
from specfuzz.core.event import Settle
from specfuzz.core.oracle import Step
from tests.oracles.build import relay, req, step, text, verdict
from tests.oracles.forwards import asked
from tests.oracles.rows_tree import TREE, A, B, run, tree, tree_entry

SEEDS = tree_entry(A, B).topk_seeds


def entering(**changes: object) -> Step:
    """A verify of trees whose entry differs so."""
    return run(tree(A, B, entry=tree_entry(A, B, **changes)))  # type: ignore[arg-type]


def settled(*seeds_of: tuple[int, ...] | None) -> Step:
    """Nothing is in flight any more; the relay rows hold these seeds."""
    old = (req("a", done=1, reserve=24), req("b", done=1, reserve=24))
    view = relay(A, B)
    held = {rid: replace(row, topk_seeds=found) for (rid, row), found in zip(view.rows.items(), seeds_of, strict=True)}
    return step(Settle(), old, (A, B), config=TREE, relay=replace(view, rows=held), settled=(asked("a", "b"),))


def resting(rid: str) -> tuple[int, ...]:
    """The seeds that a request's next round must find."""
    place = A.seqlen - 1
    return seeds(text(rid).hidden(place), right_branch(rid, place, 4), 4)


def test_right_seeds_hold_and_only_all_of_them_do() -> None:
    assert verdict("draft-state-is-right", entering()) == "holds"
    assert verdict("relay-holds-the-draft-state", settled(resting("a"), resting("b"))) == "holds"


@pytest.mark.parametrize("lane", range(4))
def test_one_wrong_seed_is_seen_on_any_branch(lane: int) -> None:
    wrong = tuple(seed + (at == lane) for at, seed in enumerate(SEEDS[1]))
    assert verdict("draft-state-is-right", entering(topk_seeds=(SEEDS[0], wrong))) == "violated"
    spoilt = tuple(seed + (at == lane) for at, seed in enumerate(resting("b")))
    assert verdict("relay-holds-the-draft-state", settled(resting("a"), spoilt)) == "violated"


def test_seeds_of_another_branch_or_row_are_wrong() -> None:
    rolled = SEEDS[0][-1:] + SEEDS[0][:-1]
    assert verdict("draft-state-is-right", entering(topk_seeds=(rolled, SEEDS[1]))) == "violated"
    assert verdict("draft-state-is-right", entering(topk_seeds=SEEDS[::-1])) == "violated"
    assert verdict("relay-holds-the-draft-state", settled(resting("b"), resting("a"))) == "violated"


def test_seeds_that_nobody_shows_are_no_pass() -> None:
    assert verdict("draft-state-is-right", entering(topk_seeds=())) == "unknown"
    assert verdict("relay-holds-the-draft-state", settled(None, None)) == "unknown"


@pytest.mark.parametrize(
    "name",
    ["accept-index-is-a-path", "move-stays-in-the-window", "bonus-ends-the-run"],
)
def test_an_exit_that_shows_no_tree_is_no_pass(name: str) -> None:
    shown = tree(A, B)
    assert shown.exit is not None
    blind = replace(shown, exit=replace(shown.exit, accept_index=(), moved=(), bonus=()))
    assert verdict(name, run(blind)) == "unknown"


CHAIN_RULES = (
    "accept-in-range", "frontier-steps-by-accept", "worker-starts-at-the-frontier", "right-draft-is-accepted",
    "window-follows-the-row", "window-inside-the-reserve", "draft-extras-pair-with-rows", "decided-tokens-are-the-text",
)  # fmt: skip


@pytest.mark.parametrize("name", CHAIN_RULES)
def test_a_round_of_trees_keeps_the_rules_of_chains(name: str) -> None:
    known = run(tree(A, B))
    known.ledger.in_flight = [replace(known.ledger.in_flight[0], accept=(3, 3))]
    assert verdict(name, known) == "holds"
