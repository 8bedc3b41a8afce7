"""KV storage: what the slots hold. Target and draft side are separate pools that share the slot ids."""

from __future__ import annotations

from specfuzz.gpu.device import Buffer
from specfuzz.reference.streams import Streams


class KVPool:
    """target_v1, target_v2: (slots,) int64 cells by layer. draft: (slots,) int64 bigram cells, None without draft side.

    Only the forward stream touches the cells.
    """

    def __init__(self, slots: int, streams: Streams, *, with_draft: bool) -> None:
        """slots: including those of the padding page."""
        device, home = streams.device, streams.forward.name

        def layer(name: str) -> Buffer:
            return device.buffer(device.arrays.full((slots,), 0), name, home=home)

        self.target_v1, self.target_v2 = layer("target_kv"), layer("target_kv_2")
        self.draft = layer("draft_kv") if with_draft else None
