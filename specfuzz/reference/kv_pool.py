"""KV storage: what the slots hold. Target and draft side are separate pools that share the slot ids."""

from __future__ import annotations

import torch

from specfuzz.reference.streams import Streams


class KVPool:
    """target: (slots, 2) int64, layer-1 and layer-2 cells. draft: (slots,) int64 bigram cells, None without a draft side.

    Only the forward stream touches the cells.
    """

    def __init__(self, slots: int, streams: Streams, *, with_draft: bool) -> None:
        """slots: including those of the padding page."""
        device, home = streams.device, streams.forward.name
        self.target = device.buffer(
            torch.zeros((slots, 2), dtype=torch.int64, device=device.torch_device), "target_kv", home=home
        )
        self.draft = (
            device.buffer(torch.zeros(slots, dtype=torch.int64, device=device.torch_device), "draft_kv", home=home)
            if with_draft
            else None
        )
