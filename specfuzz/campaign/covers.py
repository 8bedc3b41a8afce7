"""Which configurations a campaign walks: a pairwise cover, so that every two choices meet in some run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, zip_longest
from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.core.config import PAGE_SIZES, EngineConfig
from specfuzz.core.draft_tree import most_nodes
from specfuzz.core.port import System, accepted_configs
from specfuzz.errors import ConfigError

#: Longest prompt and output that the machine submits, in tokens; see state_machine.decoding.
LONGEST_PROMPT, LONGEST_OUTPUT = 20, 24
#: How far a prompt may reach beyond its first page, where pages are longer than the longest plain prompt.
BEYOND_PAGE = 4
#: Nodes that a tree verifies where nothing else is asked for: twice the longest path of three steps, so that an
#: accepted path lies scattered among nodes of other branches.
TREE_NODES = 8

_Choice = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """What may vary. fixed: configuration fields that hold everywhere, whatever the factors say.

    pools: "ample" holds every row at its longest; "tight" little more than one and "scarce" not even that, so that the
    engine has to evict and retract; "rows" has KV but rows for two only. topk: 1 drafts a chain, more a tree.
    apart: pairs of (factor, value) that never meet in a configuration; `pool` is the factor of `pools`.
    """

    algorithms: tuple[str, ...] = ("EAGLE", "NONE")
    overlap: tuple[bool, ...] = (True, False)
    page_sizes: tuple[int, ...] = PAGE_SIZES
    pools: tuple[str, ...] = ("ample", "tight", "scarce", "rows")
    radix: tuple[bool, ...] = (True, False)
    spec_steps: tuple[int, ...] = (3, 1, 2)
    topk: tuple[int, ...] = (1, 4)
    mixed_chunk: tuple[bool, ...] = (False, True)
    chunked_prefill: tuple[bool, ...] = (False, True)
    needs_cpu_seq_lens: tuple[bool, ...] = (True, False)
    grammar: tuple[bool, ...] = (False, True)
    apart: tuple[_Choice, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)


def covering_configs(factors: Factors) -> tuple[EngineConfig, ...]:
    """Configurations in which every pair of choices of one algorithm occurs; the algorithms take turns.

    Trees have a cover of their own, like another algorithm: systems that draft chains only lose no pair then.
    Impossible ones (ConfigError) are left out. Raises the last ConfigError if nothing is left.
    """
    fixed, columns = dict(factors.fixed), []
    algorithms = (fixed["algorithm"],) if "algorithm" in fixed else factors.algorithms
    clash: ConfigError | None = None
    for algorithm, topk in _families(factors, algorithms):
        column: list[EngineConfig] = []
        for choice in _pairwise(_levels(factors, algorithm), factors.apart):
            try:
                config = _config_of(algorithm, {**dict(choice), "topk": topk}, fixed)
            except ConfigError as error:
                clash = error
                continue
            if config not in column:
                column.append(config)
        columns.append(column)
    turns = tuple(config for turn in zip_longest(*columns) for config in turn if config is not None)
    if not turns and clash is not None:
        raise clash
    return turns


def configs_with(factors: Factors, needs: Capability, system: System) -> list[EngineConfig]:
    """Those of the cover that the system can run with every capability in `needs`; may be none."""
    accepted, _refused = accepted_configs(system, covering_configs(_narrowed(factors, needs)))
    return [config for config, capabilities in accepted.items() if needs in capabilities]


def _narrowed(factors: Factors, needs: Capability) -> Factors:
    """Only choices that can have what is needed, so that the cover is not spent on the others."""
    if Capability.SPECULATIVE in needs:
        factors = replace(factors, algorithms=tuple(name for name in factors.algorithms if name != "NONE"))
    if Capability.TREE in needs:
        trees = tuple(topk for topk in factors.topk if topk > 1)
        factors = replace(factors, topk=trees, algorithms=tuple(name for name in factors.algorithms if name != "NONE"))
    if Capability.OVERLAP in needs:
        factors = replace(factors, overlap=(True,))
    if Capability.RADIX in needs:
        factors = replace(factors, radix=(True,))
    if Capability.PAGED in needs:
        factors = replace(factors, page_sizes=tuple(size for size in factors.page_sizes if size > 1))
    if Capability.MIXED_CHUNK in needs:
        factors = replace(factors, mixed_chunk=(True,))
    if Capability.GRAMMAR in needs:
        factors = replace(factors, grammar=(True,))
    if Capability.CHUNKED_PREFILL in needs:
        factors = replace(factors, chunked_prefill=(True,))
    return factors


def _families(factors: Factors, algorithms: Iterable[str]) -> list[tuple[str, int]]:
    """(algorithm, topk) of every column, chains first. A fixed shape of the draft is no choice, and NONE has none."""
    if "topk" in factors.fixed:
        choices: tuple[int, ...] = (factors.fixed["topk"],)
    else:
        choices = (1,) if "draft_token_num" in factors.fixed else factors.topk
    families = [(algorithm, topk) for topk in choices for algorithm in algorithms]
    return [(algorithm, topk) for algorithm, topk in families if algorithm != "NONE" or topk == choices[0]]


def _levels(factors: Factors, algorithm: str) -> dict[str, tuple[Any, ...]]:
    levels: dict[str, tuple[Any, ...]] = {
        "overlap": factors.overlap,
        "page_size": factors.page_sizes,
        "pool": factors.pools,
        "radix": factors.radix,
        "mixed_chunk": factors.mixed_chunk,
        "chunked_prefill": factors.chunked_prefill,
        "grammar": factors.grammar,
    }
    if algorithm != "NONE":
        levels["spec_steps"] = factors.spec_steps
        levels["needs_cpu_seq_lens"] = factors.needs_cpu_seq_lens
    # A fixed field is no choice; the pool is none where its size is given.
    hidden = {**factors.fixed, **({"pool": None} if "num_pages" in factors.fixed else {})}
    return {name: values[:1] if name in hidden else values for name, values in levels.items()}


def _config_of(algorithm: str, choice: dict[str, Any], fixed: dict[str, Any]) -> EngineConfig:
    pool = choice.pop("pool")
    wanted: dict[str, Any] = {"algorithm": algorithm, "max_reqs": 2 if pool == "rows" else 4, **choice, **fixed}
    if "draft_token_num" not in fixed and "spec_steps" in wanted:
        chain, topk = wanted["spec_steps"] + 1, wanted["topk"]
        wanted["draft_token_num"] = chain if topk == 1 else max(chain, min(TREE_NODES, most_nodes(topk, chain - 1)))
    long_pages = wanted["page_size"] > LONGEST_PROMPT
    wanted.setdefault("context_len", 2 * wanted["page_size"] if long_pages else 64)
    roomy = EngineConfig().with_(**{**wanted, "num_pages": 1024})
    if "num_pages" not in fixed:
        wanted["num_pages"] = _pages(roomy, pool)
    return roomy.with_(**wanted)


def _pages(config: EngineConfig, pool: str) -> int:
    prompt = max(LONGEST_PROMPT, config.page_size + BEYOND_PAGE if config.page_size > 1 else 0)
    # Scarce: the longest prompt fits alone with the rounds that follow, but not to its end: it is the last one to go.
    output = 0 if pool == "scarce" else LONGEST_OUTPUT
    longest = min(prompt + output, config.context_len) + config.max_accept + config.reserve_per_decode
    pages = -(-longest // config.page_size) + 1
    # Half as much again for what the prefix tree keeps.
    return pages if pool in ("tight", "scarce") else pages * config.max_reqs * 3 // 2


def _pairwise(levels: Mapping[str, Iterable[Any]], apart: Iterable[_Choice] = ()) -> list[_Choice]:
    """Greedy pairwise cover, deterministic; the first row takes every first level. apart: pairs that never meet."""
    names = list(levels)
    values = {name: list(levels[name]) for name in names}
    never = {frozenset(pair) for pair in apart}
    missing = {
        ((a, x), (b, y)) for a, b in combinations(names, 2) for x in values[a] for y in values[b]
        if frozenset(((a, x), (b, y))) not in never
    }  # fmt: skip
    rows: list[_Choice] = []
    while missing or not rows:
        # Start from a missing pair, first in a fixed order, so that every row covers something new.
        row: dict[str, Any] = dict(min(missing, key=repr)) if rows else {name: values[name][0] for name in names}
        for name in names:
            if name not in row:
                free = [
                    value for value in values[name]
                    if not any(frozenset(((name, value), known)) in never for known in row.items())
                ]  # fmt: skip
                row[name] = max(free, key=lambda value: _news(row, name, value, missing, names))
        choice = tuple((name, row[name]) for name in names)
        missing -= set(combinations(choice, 2))
        rows.append(choice)
    return rows


def _news(row: dict[str, Any], name: str, value: Any, missing: set[Any], names: list[str]) -> int:
    place = names.index(name)
    found = 0
    for other, chosen in row.items():
        pair = ((other, chosen), (name, value)) if names.index(other) < place else ((name, value), (other, chosen))
        found += pair in missing
    return found
