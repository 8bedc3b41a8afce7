"""One engine configuration, validated; every error names both fields that clash."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from specfuzz.core.draft_tree import most_nodes
from specfuzz.errors import ConfigError

PAGE_SIZES = (1, 4, 16, 64)

#: Bounds that keep a hostile or mistyped configuration from asking for the moon.
MAX_POOL_TOKENS = 1 << 20
_BOUNDS = {
    "topk": (1, 64),
    "spec_steps": (1, 64),
    "draft_token_num": (2, 256),
    "max_reqs": (1, 1 << 10),
    "context_len": (8, 1 << 16),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Shape of one engine under test; an argument of the machine and a part of every trace.

    algorithm: registered name (NONE, EAGLE). overlap: results processed one launch late.
    page_size: tokens per page. topk, spec_steps, draft_token_num: SGLang's `speculative_*` (ignored by NONE); topk 1
    needs draft_token_num == spec_steps + 1, a tree (topk > 1) at least that and at most what it can fill.
    num_pages: pages of the KV pool without the padding page. max_reqs: rows of req_to_token without the padding row.
    context_len: longest prompt plus output, in tokens.
    radix: keep a prefix tree. mixed_chunk: allow MIXED launches. chunked_prefill: allow extends that end in a prompt.
    needs_cpu_seq_lens: under overlap a speculative batch gets a host mirror of its lengths before each launch, for
    which the host waits; without, it runs mirrorless and the host runs ahead. grammar: requests may be constrained.
    """

    algorithm: str = "EAGLE"
    overlap: bool = True
    page_size: int = 1
    topk: int = 1
    spec_steps: int = 3
    draft_token_num: int = 4
    num_pages: int = 128
    max_reqs: int = 4
    context_len: int = 64
    radix: bool = True
    mixed_chunk: bool = False
    chunked_prefill: bool = False
    needs_cpu_seq_lens: bool = True
    grammar: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError unless the fields fit each other."""
        for field in fields(self):
            value, wanted = getattr(self, field.name), type(field.default)
            if type(value) is not wanted:
                raise ConfigError(f"`{field.name}`={value!r} is not {_article(wanted)}.")
        if self.page_size not in PAGE_SIZES:
            raise ConfigError(f"`page_size`={self.page_size} is not one of {', '.join(map(str, PAGE_SIZES))}.")
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                size = "small: it must be at least" if value < least else "large: it must be at most"
                raise ConfigError(f"`{name}`={value} is too {size} {least if value < least else most}.")
        if self.speculative and self.topk == 1 and self.draft_token_num != self.spec_steps + 1:
            raise ConfigError(
                f"`draft_token_num`={self.draft_token_num} does not fit `spec_steps`={self.spec_steps}: topk=1 needs "
                f"draft_token_num == spec_steps + 1. Set {self.spec_steps + 1}, or use topk > 1."
            )
        if self.speculative and self.topk > 1:
            self._check_tree()
        if self.num_pages * self.page_size > MAX_POOL_TOKENS:
            raise ConfigError(
                f"`num_pages`={self.num_pages} does not fit `page_size`={self.page_size}: the pool would have "
                f"{self.num_pages * self.page_size} tokens, more than the {MAX_POOL_TOKENS} that a test needs."
            )
        if self.num_pages * self.page_size < 2 * self.page_size + self.reserve_per_decode:
            raise ConfigError(
                f"`num_pages`={self.num_pages} does not fit `page_size`={self.page_size}: a single request needs "
                f"{2 * self.page_size + self.reserve_per_decode} tokens for its prompt page and its decode reserve."
            )

    def _check_tree(self) -> None:
        """Raise ConfigError unless the tree can be filled and holds a path of every accept length."""
        least, most = self.spec_steps + 1, most_nodes(self.topk, self.spec_steps)
        if self.draft_token_num < least:
            raise ConfigError(
                f"`draft_token_num`={self.draft_token_num} does not fit `spec_steps`={self.spec_steps}: the longest "
                f"accepted run has {least} tokens (root and {self.spec_steps} levels), and its path must be among the "
                f"verified nodes. Set draft_token_num to at least {least}, or fewer steps."
            )
        if self.draft_token_num > most:
            raise ConfigError(
                f"`draft_token_num`={self.draft_token_num} does not fit `topk`={self.topk}: with "
                f"`spec_steps`={self.spec_steps} the tree has a root, {self.topk} seeds and "
                f"{most - 1 - self.topk} further proposals, {most} nodes in all. Set draft_token_num to at most {most}."
            )

    def completed(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The changes with the verify width that they leave no choice about: a chain of S steps verifies S + 1."""
        if "spec_steps" in changes and "draft_token_num" not in changes and changes.get("topk", self.topk) == 1:
            return {**changes, "draft_token_num": changes["spec_steps"] + 1}
        return changes

    @property
    def speculative(self) -> bool:
        """Whether the algorithm drafts at all."""
        return self.algorithm != "NONE"

    @property
    def alloc_len_per_decode(self) -> int:
        """KV length (tokens) that one request may write in one decode. Source: sglang 0.5.23 allocation_sizing.

        With pages every branch of a tree has whole pages of its own, the first of which starts with a copy of the
        prefix's partial page: at worst page_size - 1 tokens before its spec_steps.
        """
        if not self.speculative:
            return 1
        if self.page_size == 1 or self.topk == 1:
            return max(self.spec_steps * self.topk, self.draft_token_num)
        pages_per_branch = -(-(self.page_size - 1 + self.spec_steps) // self.page_size)
        return max(pages_per_branch * self.page_size * self.topk, self.draft_token_num)

    @property
    def reserve_per_decode(self) -> int:
        """KV length (tokens) that prepare reserves beyond kv_committed_len: twice the above under speculation."""
        return 2 * self.alloc_len_per_decode if self.speculative else 1

    @property
    def max_accept(self) -> int:
        """Longest run, incl. the bonus, that one verify can accept: the root and one node of every level."""
        return self.spec_steps + 1 if self.speculative else 1

    @property
    def row_width(self) -> int:
        """Cells of one req_to_token row: context plus the headroom of the reserve. Source: allocation_sizing."""
        extra = 4 + (self.draft_token_num if self.speculative else 0)
        if self.speculative:
            extra = max(extra, self.reserve_per_decode + self.page_size - 1)
        return self.context_len + extra

    @property
    def pool_tokens(self) -> int:
        """Usable KV slots, without the padding page."""
        return self.num_pages * self.page_size

    def with_(self, **changes: Any) -> EngineConfig:
        """The same configuration with some fields changed; raises ConfigError for an unknown field."""
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise ConfigError(
                    f"the engine configuration has no field `{name}`; fields: {', '.join(sorted(known))}."
                )
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for trace headers and reports."""
        return asdict(self)

    def label(self) -> str:
        """Short name for progress lines, e.g. `EAGLE overlap page 4`."""
        tree = f" topk {self.topk}" if self.speculative and self.topk > 1 else ""
        return f"{self.algorithm} {'overlap' if self.overlap else 'sync'} page {self.page_size}{tree}"


def _article(wanted: type) -> str:
    return {int: "an integer", bool: "true or false", str: "a name"}[wanted]
