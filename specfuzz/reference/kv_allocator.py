"""Pages of KV slots: who may write where. Slot s is of page s // page_size; page 0 is padding, never handed out."""

from __future__ import annotations

from specfuzz.core.lemmas import ceil_align


class TokenToKVPoolAllocator:
    """Whole pages in a LIFO free list (a recycled page is the next one out). No double-free check, as upstream."""

    def __init__(self, num_pages: int, page_size: int) -> None:
        """num_pages: without the padding page."""
        self.page_size = page_size
        self.num_pages = num_pages
        self.free_pages = list(range(num_pages, 0, -1))
        self._group: list[int] | None = None

    def available_size(self) -> int:
        """Free tokens, in whole pages."""
        return len(self.free_pages) * self.page_size

    def alloc_extend(self, allocated: int, end: int, last_slot: int) -> list[int] | None:
        """Slots for positions [allocated, end) of one row; fills its last, partly used page first.

        last_slot: slot of position allocated - 1 (any value if allocated is on a page boundary). None if too few pages.
        """
        page_size = self.page_size
        boundary = min(end, ceil_align(allocated, page_size))
        pages = (ceil_align(end, page_size) - boundary) // page_size if end > boundary else 0
        if pages > len(self.free_pages):
            return None
        slots = list(range(last_slot + 1, last_slot + 1 + boundary - allocated))
        if not pages:
            return slots
        taken = self.free_pages[: -pages - 1 : -1]  # the last one first
        del self.free_pages[-pages:]
        if page_size == 1:
            return slots + taken
        for page in taken:
            slots += range(page * page_size, (page + 1) * page_size)
        del slots[end - allocated :]  # the last page may be used in part
        return slots

    def free(self, slots: list[int]) -> None:
        """Return every page that a slot names; inside a free group it becomes available when the group ends."""
        page_size = self.page_size
        pages = list(dict.fromkeys(slots if page_size == 1 else [slot // page_size for slot in slots]))
        if self._group is not None:
            self._group += pages
        else:
            self.free_pages += pages

    def free_group_begin(self) -> None:
        """Batch the frees of one result; groups don't nest."""
        assert self._group is None, "free groups don't nest"
        self._group = []

    def free_group_end(self) -> None:
        """Hand the group's pages back."""
        assert self._group is not None
        self.free_pages += self._group
        self._group = None
