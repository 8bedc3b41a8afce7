"""The integer-exact toy model: what every KV cell holds and which token follows, as pure functions on Python integers.

It is a two-layer transformer in miniature. At position p with input token t:
  v1(t, p)            = mix(t, p)                                        layer-1 cell
  D(p)                = sum of j * v1(j) over j < p                      layer-1 attention: digest of the prefix
  v2(p)               = mix(v1(p), D(p))                                 layer-2 cell
  O(p)                = sum of (j + 1) * v2(j) over j <= p               layer-2 attention
with mix(a, b) = f(b + A * a), where f(x) = x * (x | 1) stirs the high bits.
  token at p + 1      = the stop token if a stop is armed there, else unembed(O(p))
All arithmetic wraps in int64, so tensors on any device agree bit for bit. An engine computes the sums by reading cells
*through its row table*: one wrong, stale, missing or doubled slot changes the text.
The draft side keeps one value per slot: cell i holds v1 of the token at i + 1 (a bigram cell, as EAGLE's draft KV
depends on the next token); with hidden = O it predicts the target exactly when its state is right.
`Oracle text` (plain autoregressive decoding) is `Continuation`, independent of any engine.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

#: Token ids lie in [0, 2^40): chance agreement of two digests is nil.
TOKEN_BITS = 40
TOKEN_MASK = (1 << TOKEN_BITS) - 1
#: The stop token lies outside of the digest's range.
STOP_TOKEN = (1 << TOKEN_BITS) + 7
#: A wrong proposal is the right one with this bit flipped.
FLIP_BIT = 1 << 20

#: From the golden ratio; any odd 61-bit constant with mixed bits would do.
MIX_A = 0x1E3779B97F4A7C15
#: Tokens are taken from the high bits, which f has stirred.
TOKEN_SHIFT = 20

_WRAP = 1 << 64
_HALF = 1 << 63
_MASK = _WRAP - 1


def wrap(value: int) -> int:
    """Value as a two's-complement int64."""
    return (value + _HALF) % _WRAP - _HALF


def mix(a: int, b: int) -> int:
    """int64 hash of two int64 values; the same as the tensor version in the reference."""
    return _stir(b + a * MIX_A)


def unembed(reduction: int) -> int:
    """Token id that follows a layer-2 reduction."""
    return (_stir(reduction) >> TOKEN_SHIFT) & TOKEN_MASK


def _stir(x: int) -> int:
    x = wrap(x)
    return wrap(x * (x | 1))


def layer1_weight(position: int) -> int:
    """Weight of position p in the digest: p, so position 0 (which no draft cell stands for) has none."""
    return position


def layer2_weight(position: int) -> int:
    """Weight of position p in the reduction: p + 1."""
    return position + 1


@lru_cache(maxsize=4096)
def prompt_tokens(rid: str, prompt_len: int, shared_len: int = 0) -> tuple[int, ...]:
    """Prompt of a request: `shared_len` tokens of one common stream, then tokens of its own stream."""
    own, common = crc32(rid.encode()) | (1 << 33), 1 << 34
    return tuple(
        (mix(common if position < shared_len else own, position) >> TOKEN_SHIFT) & TOKEN_MASK
        for position in range(prompt_len)
    )


class Continuation:
    """Plain autoregressive decoding of one sequence, extended on demand: the independent anchor of content.

    cells1[p], cells2[p]: expected target KV cells of position p. digest[p] = D(p); reduction[p] = O(p).
    """

    __slots__ = ("cells1", "cells2", "digest", "reduction", "stops", "tokens")

    def __init__(self, prompt: tuple[int, ...]) -> None:
        """prompt: token ids."""
        self.tokens: list[int] = list(prompt)
        self.stops: set[int] = set()
        self.cells1: list[int] = []
        self.cells2: list[int] = []
        self.digest: list[int] = []
        self.reduction: list[int] = []

    def arm_stop(self, position: int) -> None:
        """Make the token at absolute `position` the stop token; text that was already computed past it is dropped."""
        self.stops.add(position)
        if position < len(self.tokens) and self.tokens[position] != STOP_TOKEN:
            del self.tokens[position:]
            for column in (self.cells1, self.cells2, self.digest, self.reduction):
                del column[position:]

    def _feed(self, position: int) -> None:
        # `mix` and `wrap` written out: this is the hot path of every judgement of content.
        x = (position + self.tokens[position] * MIX_A) & _MASK
        v1 = x * (x | 1) & _MASK
        if position == 0:
            digest, below = 0, 0
        else:
            before = position - 1
            digest = (self.digest[before] + before * self.cells1[before]) & _MASK
            below = self.reduction[before]
        v1 = v1 - _WRAP if v1 >= _HALF else v1
        x = (digest + v1 * MIX_A) & _MASK
        v2 = x * (x | 1) & _MASK
        v2 = v2 - _WRAP if v2 >= _HALF else v2
        reduction = (below + (position + 1) * v2) & _MASK
        self.cells1.append(v1)
        self.cells2.append(v2)
        self.digest.append(digest - _WRAP if digest >= _HALF else digest)
        self.reduction.append(reduction - _WRAP if reduction >= _HALF else reduction)

    def ensure(self, length: int) -> None:
        """Compute tokens [0, length) and the cells of [0, length - 1) at least."""
        while len(self.tokens) < length:
            position = len(self.tokens) - 1
            if len(self.cells1) <= position:
                self._fill(position + 1)
            following = position + 1
            self.tokens.append(STOP_TOKEN if following in self.stops else unembed(self.reduction[position]))

    def _fill(self, length: int) -> None:
        for position in range(len(self.cells1), length):
            self._feed(position)

    def token(self, position: int) -> int:
        """Token at absolute position."""
        if position >= len(self.tokens):
            self.ensure(position + 1)
        return self.tokens[position]

    def target_cell(self, position: int) -> tuple[int, int]:
        """(v1, v2) that a right engine has in the slot of `position`."""
        if position >= len(self.cells1):
            self.ensure(position + 1)
            self._fill(position + 1)
        return self.cells1[position], self.cells2[position]

    def draft_cell(self, position: int) -> int:
        """Draft KV value that a right engine has in the slot of `position`."""
        return mix(self.token(position + 1), position + 1)

    def hidden(self, position: int) -> int:
        """O(position): the hidden state after the token at `position` was consumed."""
        self.target_cell(position)
        return self.reduction[position]
