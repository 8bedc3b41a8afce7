"""KV storage: what the slots hold. Target and draft side are separate pools that share the slot ids."""

from __future__ import annotations

from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.device import Buffer
from specfuzz.gpu.races import Access
from specfuzz.reference.streams import Streams


def move_kv_kernel(access: Access, arrays: Arrays, layers: list[Array], targets: Array, sources: Array) -> None:
    """layer[targets] = layer[sources]; a layer is read before it is written. Only slot 0 may stand twice, to itself."""
    access.read(targets, None)
    access.read(sources, None)
    for layer in layers:
        access.read(layer, sources)
        layer[targets] = arrays.take(layer, sources)
        access.write(layer, targets)


class KVPool:
    """target_v1, target_v2: (slots,) int64 cells by layer. draft: (slots,) int64 bigram cells, None without draft side.

    Only the forward stream touches the cells.
    """

    def __init__(self, slots: int, streams: Streams, *, with_draft: bool) -> None:
        """slots: including those of the padding page."""
        device, home = streams.device, streams.forward.name

        def layer(name: str) -> Buffer:
            return device.buffer(device.arrays.full((slots,), 0), name, home=home)

        self._arrays, self._forward = device.arrays, streams.forward
        self.target_v1, self.target_v2 = layer("target_kv"), layer("target_kv_2")
        self.draft = layer("draft_kv") if with_draft else None

    def move_kv_cache(self, tgt_loc: Buffer, src_loc: Buffer) -> None:
        """Move target KV between slots, on the forward stream. tgt_loc, src_loc: int64 of one shape."""
        layers = [self.target_v1, self.target_v2]
        self._forward.launch("move_kv_cache", move_kv_kernel, self._arrays, layers, tgt_loc, src_loc)
