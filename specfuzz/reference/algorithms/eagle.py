"""EAGLE: proposals from relayed draft state, as a chain (topk 1) or as a tree; each has a worker of its own."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.reference.algorithms import ALGORITHMS, Algorithm
from specfuzz.reference.algorithms.eagle_chain import EagleWorkerV2
from specfuzz.reference.algorithms.eagle_tree import EagleTreeWorkerV2
from specfuzz.reference.worker import ModelRunner


def _make_worker(runner: ModelRunner) -> EagleWorkerV2:
    return EagleWorkerV2(runner) if runner.config.topk == 1 else EagleTreeWorkerV2(runner)


ALGORITHMS.register(
    "EAGLE",
    Algorithm(
        name="EAGLE",
        summary="proposals from relayed draft state: a chain of S (topk 1), or the K best nodes of a tree of S levels",
        capabilities=(
            Capability.SPECULATIVE
            | Capability.DRAFT_KV
            | Capability.DRAFT_EXTRAS
            | Capability.MIXED_CHUNK
            | Capability.TREE
            | Capability.GRAMMAR
            | Capability.GRAMMAR_OVERLAP
        ),
        publishes="after accept (and the move of a tree's path), before draft-extend: C + accept_len",
        relays="bonus token, first topk proposals (topk_index), hidden state; draft KV stays at the target's slots",
        make_worker=_make_worker,
    ),
)
