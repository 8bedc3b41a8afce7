"""Vocab masks of a batch: what the grammars of its rows let through, on the host, just before something is sampled.

Source: sglang 0.5.23 speculative/spec_utils.py build_grammar_vocab_mask, sampling/sampling_batch_info.py (behaviour).
"""

from __future__ import annotations

from collections.abc import Callable

from specfuzz.gpu.device import Buffer
from specfuzz.reference.grammar import vocab_masks
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.streams import Streams


class VocabMasks:
    """Builds masks; each entry is 1 where the stop token is all that may follow, else 0. None without a grammar.

    barrier: lets the FSMs catch up with every result that is still queued; the scheduler's.
    """

    def __init__(self, streams: Streams) -> None:
        """streams: those of the forwards."""
        self._streams = streams
        self.barrier: Callable[[], None] = lambda: None

    def of_rows(self, batch: ScheduleBatch) -> list[int] | None:
        """By row, (bs,), in the states as they are now; a row that has finished meanwhile is left alone."""
        if not batch.has_grammar:
            return None
        return [
            int(req.grammar is not None and not req.finished() and req.grammar.allows_only_stop()) for req in batch.reqs
        ]

    def of_nodes(
        self, batch: ScheduleBatch, draft_tokens: Buffer, parents: Buffer | None = None
    ) -> list[list[int]] | None:
        """By row and node of a verify tree, (bs, K). draft_tokens, parents: (bs, K) int64, device; None is a chain.

        The draft writes both, and the host waits for it: which masks are due depends on what it has proposed.
        """
        if not batch.has_grammar:
            return None
        self.barrier()
        self._streams.forward.record("drafted").synchronize()
        read = self._streams.device.host_read
        tokens = read(draft_tokens).tolist()
        chain = [max(0, node - 1) for node in range(draft_tokens.shape[1])]
        shapes = [chain] * len(tokens) if parents is None else read(parents).tolist()
        return [
            [0] * len(drafted) if req.grammar is None else vocab_masks(req.grammar, drafted, shape)
            for req, drafted, shape in zip(batch.reqs, tokens, shapes, strict=True)
        ]
