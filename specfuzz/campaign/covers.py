"""Which configurations a campaign walks: a pairwise cover, so that every two choices meet in some run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations, zip_longest
from typing import Any

from specfuzz.core.config import PAGE_SIZES, EngineConfig
from specfuzz.errors import ConfigError

#: Longest prompt and output that the machine submits, in tokens; see state_machine.decoding.
LONGEST_PROMPT, LONGEST_OUTPUT = 20, 24
#: How far a prompt may reach beyond its first page, where pages are longer than the longest plain prompt.
BEYOND_PAGE = 4

_Choice = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """What may vary. fixed: configuration fields that hold everywhere, whatever the factors say.

    pools: "ample" holds every row at its longest; "tight" little more than one and "scarce" not even that, so that the
    engine has to evict and retract; "rows" has KV but rows for two only.
    """

    algorithms: tuple[str, ...] = ("EAGLE", "NONE")
    overlap: tuple[bool, ...] = (True, False)
    page_sizes: tuple[int, ...] = PAGE_SIZES
    pools: tuple[str, ...] = ("ample", "tight", "scarce", "rows")
    radix: tuple[bool, ...] = (True, False)
    spec_steps: tuple[int, ...] = (3, 1, 2)
    mixed_chunk: tuple[bool, ...] = (False,)
    chunked_prefill: tuple[bool, ...] = (False,)
    fixed: Mapping[str, Any] = field(default_factory=dict)


def covering_configs(factors: Factors) -> tuple[EngineConfig, ...]:
    """Configurations in which every pair of choices of one algorithm occurs; the algorithms take turns.

    Impossible ones (ConfigError) are left out. Raises the last ConfigError if nothing is left.
    """
    fixed, columns = dict(factors.fixed), []
    algorithms = (fixed["algorithm"],) if "algorithm" in fixed else factors.algorithms
    clash: ConfigError | None = None
    for algorithm in algorithms:
        column: list[EngineConfig] = []
        for choice in _pairwise(_levels(factors, algorithm)):
            try:
                config = _config_of(algorithm, dict(choice), fixed)
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


def _levels(factors: Factors, algorithm: str) -> dict[str, tuple[Any, ...]]:
    levels: dict[str, tuple[Any, ...]] = {
        "overlap": factors.overlap,
        "page_size": factors.page_sizes,
        "pool": factors.pools,
        "radix": factors.radix,
        "mixed_chunk": factors.mixed_chunk,
        "chunked_prefill": factors.chunked_prefill,
    }
    if algorithm != "NONE":
        levels["spec_steps"] = factors.spec_steps
    # A fixed field is no choice; the pool is none where its size is given.
    hidden = {**factors.fixed, **({"pool": None} if "num_pages" in factors.fixed else {})}
    return {name: values[:1] if name in hidden else values for name, values in levels.items()}


def _config_of(algorithm: str, choice: dict[str, Any], fixed: dict[str, Any]) -> EngineConfig:
    pool = choice.pop("pool")
    wanted: dict[str, Any] = {"algorithm": algorithm, "max_reqs": 2 if pool == "rows" else 4, **choice, **fixed}
    if wanted.get("topk", 1) == 1 and "draft_token_num" not in fixed and "spec_steps" in wanted:
        wanted["draft_token_num"] = wanted["spec_steps"] + 1
    long_pages = wanted["page_size"] > LONGEST_PROMPT
    wanted.setdefault("context_len", 2 * wanted["page_size"] if long_pages else 64)
    roomy = EngineConfig().with_(**{**wanted, "num_pages": 1024})
    if "num_pages" not in fixed:
        wanted["num_pages"] = _pages(roomy, pool)
    return roomy.with_(**wanted)


def _pages(config: EngineConfig, pool: str) -> int:
    prompt = max(LONGEST_PROMPT, config.page_size + BEYOND_PAGE if config.page_size > 1 else 0)
    # Scarce: the longest request fits alone for most of its life, and at its end it may be the last one to go.
    output = LONGEST_OUTPUT * 2 // 3 if pool == "scarce" else LONGEST_OUTPUT
    longest = min(prompt + output, config.context_len) + config.max_accept + config.reserve_per_decode
    pages = -(-longest // config.page_size) + 1
    # Half as much again for what the prefix tree keeps.
    return pages if pool in ("tight", "scarce") else pages * config.max_reqs * 3 // 2


def _pairwise(levels: Mapping[str, Iterable[Any]]) -> list[_Choice]:
    """Greedy pairwise cover, deterministic; the first row takes every first level."""
    names = list(levels)
    values = {name: list(levels[name]) for name in names}
    missing = {
        ((a, x), (b, y)) for a, b in combinations(names, 2) for x in values[a] for y in values[b]
    }  # fmt: skip
    rows: list[_Choice] = []
    while missing or not rows:
        # Start from a missing pair, first in a fixed order, so that every row covers something new.
        row: dict[str, Any] = dict(min(missing, key=repr)) if rows else {name: values[name][0] for name in names}
        for name in names:
            if name not in row:
                row[name] = max(values[name], key=lambda value: _news(row, name, value, missing, names))
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
