"""Configurations, registries and verdicts: clashes name both sides, and joining is a lattice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.core.config import EngineConfig
from specfuzz.core.registry import Registry
from specfuzz.core.verdict import Identity, Verdict, Violation
from specfuzz.errors import ConfigError, UnknownName, UsageError
from tests.trace.strategies import configs

verdicts = st.sampled_from(list(Verdict))


# ------------------------------------------------------------------------------------------------- configuration
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"spec_steps": 5}, ("draft_token_num", "spec_steps")),
        ({"topk": 4, "draft_token_num": 3}, ("draft_token_num", "spec_steps")),
        ({"topk": 2, "spec_steps": 1}, ("draft_token_num", "topk")),
        ({"num_pages": 3}, ("num_pages", "page_size")),
        ({"num_pages": 1, "page_size": 64}, ("num_pages", "page_size")),
        ({"page_size": 3}, ("page_size",)),
        ({"topk": 0}, ("topk",)),
        ({"max_reqs": 0}, ("max_reqs",)),
        ({"context_len": 2}, ("context_len",)),
        ({"overlap": 1}, ("overlap",)),
        ({"page_size": True}, ("page_size",)),
        ({"algorithm": None}, ("algorithm",)),
    ],
)
def test_a_clash_names_both_fields(fields: dict[str, object], named: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        EngineConfig(**fields)  # type: ignore[arg-type]
    assert all(f"`{name}`" in str(caught.value) for name in named)
    assert "\n" not in str(caught.value)


def test_an_unknown_field_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no field `pagesize`; fields: .*page_size"):
        EngineConfig().with_(pagesize=4)


@given(configs())
def test_a_valid_configuration_survives_as_plain_data(config: EngineConfig) -> None:
    assert EngineConfig(**config.as_dict()) == config
    assert config.reserve_per_decode == (2 * config.alloc_len_per_decode if config.speculative else 1)
    assert config.row_width >= config.context_len + config.reserve_per_decode


# ------------------------------------------------------------------------------------------------- registry
def test_an_unknown_name_gets_the_closest_ones() -> None:
    registry: Registry[int] = Registry("oracle")
    registry.register("pages-conserved", 1)
    registry.register("rows-conserved", 2)
    with pytest.raises(UnknownName) as caught:
        registry.get("page-conserved")
    assert str(caught.value).startswith("there is no oracle `page-conserved`. Did you mean `pages-conserved`")
    with pytest.raises(UnknownName, match=r"^there is no oracle `xyz`. Known: pages-conserved, rows-conserved.$"):
        registry.get("xyz")


def test_an_empty_registry_says_so() -> None:
    with pytest.raises(UnknownName, match=r"Known: none."):
        Registry("oracle").get("a")


def test_a_name_taken_twice_names_both_places() -> None:
    registry: Registry[object] = Registry("oracle")
    registry.register("one", test_an_empty_registry_says_so)
    with pytest.raises(UsageError, match=r"registered twice: by .*says_so and by .*both_places"):
        registry.register("one", test_a_name_taken_twice_names_both_places)


def test_builtin_things_are_loaded_once_and_when_asked_for() -> None:
    loads: list[int] = []
    registry: Registry[int] = Registry("thing", load_builtin=lambda: loads.append(registry.register("x", 1)))
    assert not loads
    assert registry.names() == ("x",) and len(registry) == 1 and "x" in registry and list(registry) == [1]
    assert loads == [1]


# ------------------------------------------------------------------------------------------------- verdicts
@given(verdicts, verdicts, verdicts)
def test_join_is_a_lattice(a: Verdict, b: Verdict, c: Verdict) -> None:
    assert a.join(b) is b.join(a)
    assert a.join(b).join(c) is a.join(b.join(c))
    assert a.join(a) is a
    assert a.join(Verdict.NOT_APPLICABLE) is a
    assert a.join(Verdict.VIOLATED) is Verdict.VIOLATED


def test_unknown_hides_no_violation_and_is_no_pass() -> None:
    assert Verdict.UNKNOWN.join(Verdict.VIOLATED) is Verdict.VIOLATED
    assert Verdict.UNKNOWN.join(Verdict.HOLDS) is Verdict.UNKNOWN


def test_an_identity_is_oracle_owner_and_phase() -> None:
    violation = Violation(
        oracle="o", owner="w", clock="host", phase="steady", formula="f", values="v", fact="a", counterfact="b",
        source="s", event_index=3, rid="a",
    )  # fmt: skip
    assert violation.identity == Identity("o", "w", "steady") and str(violation.identity) == "o/w/steady"
    assert violation.title == "o [host, w, steady]"
