"""The toy model: `Continuation` equals a direct computation from the definition in its module's docstring."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.core.language import (
    STOP_TOKEN,
    TOKEN_MASK,
    Continuation,
    layer1_weight,
    layer2_weight,
    mix,
    prompt_tokens,
    unembed,
    wrap,
)

int64s = st.integers(-(2**63), 2**63 - 1)
prompts = st.builds(prompt_tokens, st.sampled_from("abc"), st.integers(2, 12), st.sampled_from([0, 1, 2]))


def direct(tokens: list[int]) -> tuple[list[int], list[int], list[int], list[int]]:
    """v1, v2, D, O of every position, each sum taken anew from its definition."""
    v1 = [mix(token, p) for p, token in enumerate(tokens)]
    digest = [wrap(sum(layer1_weight(j) * v1[j] for j in range(1, p))) for p in range(len(tokens))]
    v2 = [mix(v1[p], digest[p]) for p in range(len(tokens))]
    reduction = [wrap(sum(layer2_weight(j) * v2[j] for j in range(p + 1))) for p in range(len(tokens))]
    return v1, v2, digest, reduction


def decode(prompt: tuple[int, ...], length: int, stops: frozenset[int] = frozenset()) -> list[int]:
    tokens = list(prompt)
    while len(tokens) < length:
        tokens.append(STOP_TOKEN if len(tokens) in stops else unembed(direct(tokens)[3][-1]))
    return tokens


@given(prompts, st.integers(0, 8), st.frozensets(st.integers(2, 20), max_size=2))
def test_a_continuation_is_what_decoding_token_by_token_gives(
    prompt: tuple[int, ...], more: int, stops: frozenset[int]
) -> None:
    stops = frozenset(stop for stop in stops if stop >= len(prompt))
    text = Continuation(prompt)
    for stop in stops:
        text.arm_stop(stop)
    length = len(prompt) + more
    tokens = decode(prompt, length + 1, stops)
    assert [text.token(p) for p in range(length)] == tokens[:length]
    v1, v2, _, reduction = direct(tokens)
    for p in range(length):
        assert text.target_cell(p) == (v1[p], v2[p])
        assert text.draft_cell(p) == v1[p + 1]
        assert text.hidden(p) == reduction[p]


@given(prompts, st.integers(0, 6), st.integers(0, 6), st.integers(0, 11))
def test_a_stop_that_is_armed_late_changes_only_what_follows(
    prompt: tuple[int, ...], read: int, at: int, asked: int
) -> None:
    late, early = Continuation(prompt), Continuation(prompt)
    late.ensure(len(prompt) + read)
    late.hidden(min(asked, len(prompt) + read - 1))
    stop = len(prompt) + at
    late.arm_stop(stop)
    early.arm_stop(stop)
    for p in range(stop + 4):
        assert late.token(p) == early.token(p) and late.target_cell(p) == early.target_cell(p)
    assert late.token(stop) == STOP_TOKEN


@given(int64s, int64s)
def test_mix_stays_in_64_bits_and_tokens_in_their_range(a: int, b: int) -> None:
    assert -(2**63) <= mix(a, b) < 2**63
    assert 0 <= unembed(a) <= TOKEN_MASK < STOP_TOKEN


@given(st.integers(-(2**70), 2**70))
def test_wrap_is_two_s_complement(value: int) -> None:
    assert wrap(value) == int.from_bytes((value % 2**64).to_bytes(8, "little"), "little", signed=True)


def test_weights_differ_by_position_and_only_the_first_digest_weight_is_none() -> None:
    assert [layer1_weight(p) for p in range(200)] == list(range(200))
    assert [layer2_weight(p) for p in range(200)] == list(range(1, 201))


@pytest.mark.parametrize("shared", [0, 1, 5, 8])
def test_prompts_share_exactly_what_they_are_asked_to_share(shared: int) -> None:
    a, b = prompt_tokens("a", 8, shared), prompt_tokens("b", 8, shared)
    assert [p for p in range(8) if a[p] == b[p]] == list(range(shared))


def test_one_wrong_cell_changes_the_text() -> None:
    tokens = decode(prompt_tokens("a", 6), 12)
    for p in range(12):
        changed = [*tokens[:p], tokens[p] ^ 1, *tokens[p + 1 :]]
        assert unembed(direct(changed)[3][-1]) != unembed(direct(tokens)[3][-1])
