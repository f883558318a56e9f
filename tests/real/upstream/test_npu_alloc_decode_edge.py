"""Unit tests for NPUPagedTokenToKVPoolAllocator.alloc_decode at the edge of the pool.

alloc_decode indexes the free list by `cumsum(need) - need`, where a row needs a new
page if its new token is the first of one. For every row behind the last needing row
that index is the number of new pages. The value read there is not used, but if the
pool has exactly as many free pages as the step needs, the read is one past the end:
an AI Core error on the NPU, an IndexError on the CPU.

All tensors are on the CPU; no NPU and no server is needed.
"""

import random
import unittest

import torch

from sglang.srt.hardware_backend.npu.allocator_npu import NPUPagedTokenToKVPoolAllocator
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=8, suite="base-a-test-cpu")

PAGE_SIZE = 4

# Sequence lengths, the token being decoded included.
NEEDS = PAGE_SIZE + 1  # its new token opens a page
FITS = PAGE_SIZE + 2  # its new token goes into the page that it has
FILLS = 2 * PAGE_SIZE  # its new token is the last of the page that it has


class TestNPUAllocDecodeEdge(CustomTestCase):
    def _make(self, seq_lens, num_free_pages, need_sort=False):
        """An allocator whose rows hold their pages, with num_free_pages left."""
        rows_pages = [-(-(seq_len - 1) // PAGE_SIZE) for seq_len in seq_lens]
        allocator = NPUPagedTokenToKVPoolAllocator(
            size=(sum(rows_pages) + num_free_pages) * PAGE_SIZE,
            page_size=PAGE_SIZE,
            dtype=torch.float16,
            device="cpu",
            kvcache=None,
            need_sort=need_sort,
        )
        last_loc = []
        for seq_len, num_pages in zip(seq_lens, rows_pages):
            locs = allocator.alloc(num_pages * PAGE_SIZE)
            last_loc.append(int(locs[seq_len - 2]))
        self.assertEqual(len(allocator.free_pages), num_free_pages)
        return allocator, last_loc

    def _alloc_decode(self, allocator, seq_lens, last_loc):
        seq_lens = torch.tensor(seq_lens, dtype=torch.int64)
        return allocator.alloc_decode(
            seq_lens, seq_lens, torch.tensor(last_loc, dtype=torch.int64)
        )

    def _row_by_row(self, free_pages, seq_lens, last_loc):
        """What alloc_decode has to return, and the free pages that it has to leave."""
        free_pages = list(free_pages)
        locs = []
        for seq_len, loc in zip(seq_lens, last_loc):
            if seq_len % PAGE_SIZE == 1:
                locs.append(free_pages.pop(0) * PAGE_SIZE)
            else:
                locs.append(loc + 1)
        return locs, free_pages

    def _check(self, seq_lens, num_free_pages):
        allocator, last_loc = self._make(seq_lens, num_free_pages)
        expected, left = self._row_by_row(
            allocator.free_pages.tolist(), seq_lens, last_loc
        )
        locs = self._alloc_decode(allocator, seq_lens, last_loc)
        self.assertEqual(locs.tolist(), expected)
        self.assertEqual(locs.dtype, torch.int32)
        self.assertEqual(allocator.free_pages.tolist(), left)

    # More free pages than the step needs.

    def test_slack_needing_row_first(self):
        self._check([NEEDS, FITS, FILLS], num_free_pages=2)

    def test_slack_needing_row_middle(self):
        self._check([FITS, NEEDS, FILLS], num_free_pages=2)

    def test_slack_needing_row_last(self):
        self._check([FITS, FILLS, NEEDS], num_free_pages=2)

    def test_slack_several_needing_rows(self):
        self._check([NEEDS, FITS, NEEDS, FILLS, NEEDS, FITS], num_free_pages=4)

    # No page needed.

    def test_no_need_with_free_pages(self):
        self._check([FITS, FILLS, FITS], num_free_pages=3)

    def test_no_need_with_empty_free_list(self):
        self._check([FITS, FILLS, FITS], num_free_pages=0)

    # Fewer free pages than the step needs.

    def test_short_pool_returns_none(self):
        for seq_lens, num_free_pages in [
            ([NEEDS], 0),
            ([NEEDS, FITS], 0),
            ([FITS, NEEDS, NEEDS, FILLS], 1),
        ]:
            allocator, last_loc = self._make(seq_lens, num_free_pages)
            free_pages = allocator.free_pages.tolist()
            self.assertIsNone(self._alloc_decode(allocator, seq_lens, last_loc))
            self.assertEqual(allocator.free_pages.tolist(), free_pages)

    # Exactly as many free pages as needed, no row behind the last needing row.

    def test_tight_single_row(self):
        self._check([NEEDS], num_free_pages=1)

    def test_tight_needing_row_last(self):
        self._check([FITS, FILLS, NEEDS], num_free_pages=1)

    def test_tight_every_row_needs(self):
        self._check([NEEDS] * 5, num_free_pages=5)

    def test_tight_several_needing_rows_last_one_needing(self):
        self._check([NEEDS, FITS, NEEDS, FILLS, NEEDS], num_free_pages=3)

    # Exactly as many free pages as needed, with rows behind the last needing row.

    def test_tight_trailing_one_row(self):
        self._check([NEEDS, FITS], num_free_pages=1)

    def test_tight_trailing_many_rows(self):
        self._check([NEEDS] + [FITS, FILLS] * 15, num_free_pages=1)

    def test_tight_trailing_needing_row_middle(self):
        self._check([FITS, FILLS, NEEDS, FITS, FILLS], num_free_pages=1)

    def test_tight_trailing_several_needing_rows(self):
        self._check([NEEDS, FITS, NEEDS, NEEDS, FILLS, FITS], num_free_pages=3)

    def test_tight_trailing_after_released_pages_are_merged(self):
        """With need_sort freed pages are set aside until the free list is short."""
        seq_lens = [NEEDS, NEEDS, FITS]
        allocator, last_loc = self._make(seq_lens, num_free_pages=2, need_sort=True)
        free_pages = allocator.free_pages.tolist()
        allocator.free(allocator.alloc(PAGE_SIZE))
        self.assertEqual(len(allocator.free_pages), 1)
        expected, _ = self._row_by_row(free_pages, seq_lens, last_loc)
        locs = self._alloc_decode(allocator, seq_lens, last_loc)
        self.assertEqual(locs.tolist(), expected)
        self.assertEqual(allocator.available_size(), 0)

    def test_tight_trailing_when_the_pool_runs_out_page_by_page(self):
        """The rows take a page in turn, and the first one takes the last page."""
        num_rows = PAGE_SIZE
        seq_lens = [row + 2 for row in range(num_rows)]
        allocator, last_loc = self._make(seq_lens, num_free_pages=num_rows)
        for _ in range(num_rows):
            expected, left = self._row_by_row(
                allocator.free_pages.tolist(), seq_lens, last_loc
            )
            locs = self._alloc_decode(allocator, seq_lens, last_loc)
            self.assertEqual(locs.tolist(), expected)
            self.assertEqual(allocator.free_pages.tolist(), left)
            seq_lens = [seq_len + 1 for seq_len in seq_lens]
            last_loc = locs.tolist()
        self.assertEqual(allocator.available_size(), 0)

    # Random batches against the row by row reference.

    def _random_batches(self, count):
        rng = random.Random(0)
        for _ in range(count):
            rows = [rng.randint(2, 5 * PAGE_SIZE) for _ in range(rng.randint(1, 24))]
            yield rows, sum(seq_len % PAGE_SIZE == 1 for seq_len in rows)

    def test_random_batches_with_slack(self):
        for seq_lens, num_new_pages in self._random_batches(200):
            self._check(seq_lens, num_new_pages + 1)

    def test_tight_trailing_random_batches(self):
        for seq_lens, num_new_pages in self._random_batches(200):
            self._check(seq_lens, num_new_pages)


if __name__ == "__main__":
    unittest.main()
