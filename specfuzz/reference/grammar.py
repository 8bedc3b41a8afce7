"""Constrained decoding: one FSM per request, and what it allows behind every node of a verify tree.

The language is any run of tokens that the stop token ends, as output token number `length` at the latest. So the FSM
forbids nothing until its last state, which has one way out; a state that is off by one token moves the end of the text.
Source: sglang 0.5.23 constrained/base_grammar_backend.py, speculative/spec_utils.py (behaviour).
"""

from __future__ import annotations

from collections.abc import Sequence

from specfuzz.core.language import STOP_TOKEN


class Grammar:
    """The FSM of one request. accepted: the tokens that it has consumed, the output of the request by and by."""

    __slots__ = ("accepted", "length", "terminated")

    def __init__(self, length: int) -> None:
        """length: output tokens of the longest text, the stop token included."""
        self.length = length
        self.accepted: list[int] = []
        self.terminated = False

    def allows(self, token: int) -> bool:
        """Whether the token may come next."""
        return not self.terminated and (token == STOP_TOKEN or not self.allows_only_stop())

    def allows_only_stop(self) -> bool:
        """The vocab mask of this state, as far as it constrains: whether the stop token is all that it lets through."""
        return not self.terminated and len(self.accepted) + 1 == self.length

    def accept_token(self, token: int) -> None:
        """Consume one token; ValueError if it isn't allowed."""
        if not self.allows(token):
            raise ValueError(f"token {token} is not allowed behind {len(self.accepted)} of {self.length}")
        self.accepted.append(token)
        self.terminated = token == STOP_TOKEN

    def rollback(self, k: int) -> None:
        """Forget the last k tokens; a text that goes on has not ended."""
        del self.accepted[len(self.accepted) - k :]
        self.terminated = False

    def is_terminated(self) -> bool:
        """Whether the text is complete."""
        return self.terminated


def vocab_masks(grammar: Grammar, draft_tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
    """By node of a verify tree: 1 if the stop token is all that may follow it, else 0. The FSM ends where it began.

    draft_tokens: (K,), the root is the pending token that the FSM has already accepted. parents: (K,), smaller than
    their children. Below a token that isn't allowed nothing is constrained: the walk never comes there.
    """
    masks = [0] * len(draft_tokens)
    children: list[list[int]] = [[] for _ in draft_tokens]
    for node, parent in enumerate(parents):
        if node:
            children[parent].append(node)

    def visit(node: int) -> None:
        if grammar.is_terminated():
            return
        masks[node] = int(grammar.allows_only_stop())
        for child in children[node]:
            if grammar.allows(draft_tokens[child]):
                grammar.accept_token(draft_tokens[child])
                visit(child)
                grammar.rollback(1)

    visit(0)
    return masks
