"""The cover of configurations."""

from __future__ import annotations

from itertools import product

import pytest

from specfuzz.campaign.covers import Factors, covering_configs
from specfuzz.core.config import EngineConfig
from specfuzz.errors import ConfigError


@pytest.mark.parametrize(("algorithm", "topk"), [("EAGLE", 1), ("EAGLE", 4), ("NONE", 1)])
def test_every_pair_of_choices_meets_in_some_configuration(algorithm: str, topk: int) -> None:
    factors = Factors()
    configs = [config for config in covering_configs(factors) if (config.algorithm, config.topk) == (algorithm, topk)]
    columns = {"overlap": factors.overlap, "page_size": factors.page_sizes, "radix": factors.radix}
    if algorithm == "EAGLE":
        columns["spec_steps"] = factors.spec_steps
    for one, other in product(columns, columns):
        if one < other:
            met = {(getattr(config, one), getattr(config, other)) for config in configs}
            assert met == set(product(columns[one], columns[other])), (one, other)


def test_choices_that_are_kept_apart_never_meet_and_cost_no_other_pair() -> None:
    apart = tuple((("pool", pool), ("chunked_prefill", True)) for pool in ("tight", "scarce"))
    factors = Factors(
        algorithms=("EAGLE",), topk=(4,), overlap=(True,), page_sizes=(1, 4), spec_steps=(3,), apart=apart
    )
    configs = covering_configs(factors)
    small = {config for config in configs if config.num_pages * config.page_size < 200}
    assert small and not any(config.chunked_prefill for config in small)
    for other in ("page_size", "radix", "mixed_chunk", "needs_cpu_seq_lens"):
        met = {(config.chunked_prefill, getattr(config, other)) for config in configs}
        assert met == set(product((True, False), getattr(factors, f"{other}s" if other == "page_size" else other)))


def test_the_cover_is_small_and_without_repetition() -> None:
    configs = covering_configs(Factors())
    assert len(set(configs)) == len(configs) <= 56


def test_the_cover_is_the_same_every_time() -> None:
    assert covering_configs(Factors()) == covering_configs(Factors())


def test_the_algorithms_take_turns_and_the_plainest_comes_first() -> None:
    configs = covering_configs(Factors())
    turn = [("EAGLE", 1), ("NONE", 1), ("EAGLE", 4)]
    assert [(config.algorithm, config.topk) for config in configs[:6]] == turn * 2
    assert (configs[0].overlap, configs[0].page_size, configs[0].radix) == (True, 1, True)


def test_a_fixed_field_holds_everywhere() -> None:
    configs = covering_configs(Factors(fixed={"page_size": 4, "algorithm": "EAGLE", "num_pages": 40}))
    assert {(config.page_size, config.algorithm, config.num_pages) for config in configs} == {(4, "EAGLE", 40)}


def test_a_tight_pool_holds_one_request_and_not_two_of_the_longest() -> None:
    for config in covering_configs(Factors(pools=("tight",))):
        assert 20 + 24 + config.reserve_per_decode <= config.pool_tokens
        assert config.page_size == 64 or config.pool_tokens < 2 * (20 + 24 + config.reserve_per_decode)


def test_a_scarce_pool_holds_the_longest_prompt_and_not_to_its_end() -> None:
    for config in covering_configs(Factors(pools=("scarce",))):
        assert 20 + config.reserve_per_decode < config.pool_tokens
        assert config.page_size >= 16 or config.pool_tokens < 20 + 24 + config.reserve_per_decode


def test_an_impossible_field_is_refused_with_both_names() -> None:
    with pytest.raises(ConfigError, match="`draft_token_num`=9 does not fit `spec_steps`"):
        covering_configs(Factors(algorithms=("EAGLE",), fixed={"draft_token_num": 9}))
    with pytest.raises(ConfigError, match="no field `pages`"):
        covering_configs(Factors(fixed={"pages": 9}))


def test_trees_cost_chains_no_pair() -> None:
    chains = [config for config in covering_configs(Factors()) if config.topk == 1]
    assert set(chains) == set(covering_configs(Factors(topk=(1,))))


def test_a_tree_verifies_nodes_that_it_has_and_more_than_one_path_where_it_can() -> None:
    trees = covering_configs(Factors(algorithms=("EAGLE",), fixed={"topk": 4}))
    found = {config.spec_steps: config.draft_token_num for config in trees}
    assert found == {3: 8, 2: 8, 1: 5}
    wide = covering_configs(Factors(algorithms=("EAGLE",), fixed={"topk": 2, "spec_steps": 9}))
    assert {config.draft_token_num for config in wide} == {10}


def test_fixed_nodes_leave_out_what_they_do_not_fit_and_mean_a_chain_without_topk() -> None:
    trees = covering_configs(Factors(algorithms=("EAGLE",), fixed={"topk": 4, "draft_token_num": 8}))
    assert {config.spec_steps for config in trees} == {2, 3}
    chains = covering_configs(Factors(algorithms=("EAGLE",), fixed={"draft_token_num": 3}))
    assert {(config.topk, config.spec_steps) for config in chains} == {(1, 2)}


def test_one_configuration_can_be_forced() -> None:
    wanted = EngineConfig(page_size=4, overlap=False)
    assert covering_configs(Factors(fixed=wanted.as_dict())) == (wanted,)
