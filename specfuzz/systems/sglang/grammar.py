"""Constrained decoding behind SGLang's own seams: a grammar object and a vocab mask that its code drives as any other.

The language is that of the reference: any run of tokens that the stop token ends, at the latest as output token number
`length`. The mask has SGLang's shape, a row of bits per node, but the vocabulary has 2^41 words: a row is either all
ones or the one bit of the stop token, and says which word holds it when it is asked.
"""

from __future__ import annotations

from typing import Any

import torch

from specfuzz.core.language import STOP_TOKEN
from specfuzz.systems.sglang.versions import Engine

_WORD, _BIT = STOP_TOKEN // 32, 1 << (STOP_TOKEN % 32)


class MaskRow:
    """The bits of one node, 32 to a word."""

    def __init__(self, only_stop: bool) -> None:
        """only_stop: the stop token's bit alone is set."""
        self._only_stop = only_stop

    def __getitem__(self, word: Any) -> int:
        """The word as an integer."""
        if not self._only_stop:
            return -1
        return _BIT if int(word) == _WORD else 0


class VocabMask:
    """Rows of a bitmask; slices share their rows. only_stop: by row, whether the stop token is all that may follow."""

    def __init__(self, only_stop: list[bool], start: int = 0) -> None:
        """start: first row of a slice."""
        self.only_stop = only_stop
        self._start = start

    def __getitem__(self, at: Any) -> Any:
        """A row, or rows that stay shared."""
        if isinstance(at, slice):
            return VocabMask(self.only_stop, self._start + (at.start or 0))
        return MaskRow(self.only_stop[self._start + int(at)])

    def constrain(self, row: int) -> None:
        """Let nothing but the stop token through in that row."""
        self.only_stop[self._start + row] = True

    def to(self, _device: Any, **_how: Any) -> VocabMask:
        """Where it is needed: here."""
        return self


def grammar_class(engine: Engine) -> type[Any]:
    """The grammar object, a subclass of SGLang's own; made for the engine that is at hand."""
    base: Any = engine.BaseGrammarObject

    class ToyGrammar(base):  # type: ignore[misc]
        """The FSM of one request. accepted: the tokens that it has consumed."""

        def __init__(self, length: int) -> None:
            super().__init__()
            self.length = length
            self.accepted: list[int] = []

        def is_terminated(self) -> bool:
            return self.accepted[-1:] == [STOP_TOKEN]

        def _allows_only_stop(self) -> bool:
            return not self.is_terminated() and len(self.accepted) + 1 == self.length

        def accept_token(self, token: int) -> None:
            if self.is_terminated() or (self._allows_only_stop() and token != STOP_TOKEN):
                raise ValueError(f"token {token} is not allowed behind {len(self.accepted)} of {self.length}")
            self.accepted.append(int(token))

        def rollback(self, k: int) -> None:
            del self.accepted[len(self.accepted) - k :]

        def allocate_vocab_mask(self, vocab_size: int, batch_size: int, device: Any) -> VocabMask:
            return VocabMask([False] * batch_size)

        def fill_vocab_mask(self, vocab_mask: VocabMask, idx: int) -> None:
            if self._allows_only_stop():
                vocab_mask.constrain(idx)

        @staticmethod
        def move_vocab_mask(vocab_mask: VocabMask, device: Any) -> VocabMask:
            return vocab_mask

    return ToyGrammar


def sampling_mask(reqs: list[Any], sampling_info: Any) -> list[bool]:
    """By row, whether the stop token is all that may be sampled, as SGLang's sampler finds out in its `sample`."""
    if not any(req.grammar for req in reqs):
        return [False] * len(reqs)
    sampling_info.grammars = [req.grammar for req in reqs]
    sampling_info.update_regex_vocab_mask()
    only_stop: list[bool] = sampling_info.grammar_mask.vocab_mask.only_stop
    sampling_info.grammar_mask = None
    return only_stop


def verify_mask(engine: Engine, batch: Any, draft_tokens: torch.Tensor, parents: list[list[int]], barrier: Any) -> Any:
    """(bs, K) nested lists of the same by node of a verify tree, as SGLang's verify builds it.

    draft_tokens: (bs, K) int64. parents: by row and node, smaller than their children. barrier: what the scheduler
    handed over, None without overlap.
    """
    rows, nodes = draft_tokens.shape
    if not batch.has_grammar:
        return [[False] * nodes] * rows
    children, siblings = (torch.full((rows, nodes), -1, dtype=torch.int64) for _ in range(2))
    for row, above in enumerate(parents):
        last: dict[int, int] = {}
        for node in range(1, nodes):
            parent = above[node]
            (siblings if parent in last else children)[row, last.get(parent, parent)] = node
            last[parent] = node
    mask = engine.build_grammar_vocab_mask(
        reqs=batch.reqs, tree=engine.GrammarTree.from_host(children, siblings, draft_tokens),
        sampling_info=batch.sampling_info, device="cpu", barrier=barrier,
    )  # fmt: skip
    flat = mask.vocab_mask.only_stop
    return [flat[row * nodes : (row + 1) * nodes] for row in range(rows)]
