"""Runs in an engine's interpreter: what its allocator and the variants of it do at the edge. Prints one line of JSON.

usage: python allocator_edge.py TESTS, where TESTS is upstream/test_npu_alloc_decode_edge.py and lastpage_plugin is on
PYTHONPATH.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
import sys
import unittest
from typing import Any

from lastpage_plugin.settings import Allocator
from lastpage_plugin.variants import UnexpectedAllocator, bare_allocator, decode_once, has_clamp, variant_of
from sglang.srt.hardware_backend.npu import allocator_npu

INSTALLED = allocator_npu.NPUPagedTokenToKVPoolAllocator


def main() -> None:
    answer = {
        "clamp": has_clamp(INSTALLED),
        "variants": {allocator.value: describe(variant_of(INSTALLED, allocator)) for allocator in Allocator},
        "refused": {cls.__name__: reason_to_refuse(cls) for cls in UNEXPECTED},
    }
    print("\n" + json.dumps(answer), flush=True)


def describe(cls: type) -> dict[str, Any]:
    """A class by its name, by the tests that it fails, and by whether it hands out with slack what SGLang's does."""
    allocator_npu.NPUPagedTokenToKVPoolAllocator = cls
    return {
        "name": cls.__name__,
        "is_installed": cls is INSTALLED,
        "clamp": has_clamp(cls),
        "like_installed": all(outcome(cls, *case) == outcome(INSTALLED, *case) for case in cases_with_slack()),
        **run_tests(),
    }


def run_tests() -> dict[str, Any]:
    """The upstream tests on the class that stands in SGLang's module now: how many ran, and how each failure ended."""
    spec = importlib.util.spec_from_file_location("upstream_tests", sys.argv[1])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    failed = {test.id().rpartition(".")[2]: cause(text) for test, text in [*result.errors, *result.failures]}
    return {"ran": result.testsRun, "failed": failed}


def cause(traceback: str) -> str:
    """The exception that a failure began with: SGLang's test case raises one of its own on top."""
    return next(line for line in traceback.splitlines() if re.match(r"\w+Error: ", line))


def cases_with_slack() -> list[tuple[list[int], list[int], list[int]]]:
    """Lengths, last locations, free pages; at least one page more than is needed, or fewer than are needed."""
    rng = random.Random(1)
    cases = []
    for _ in range(100):
        lengths = [rng.randint(2, 20) for _ in range(rng.randint(1, 12))]
        last = [4 * row + (length - 2) % 4 for row, length in enumerate(lengths, start=1)]
        need = sum(length % 4 == 1 for length in lengths)
        free = rng.choice([need + 1, need + 3, max(0, need - 1)])
        if free != need:
            cases.append((lengths, last, rng.sample(range(50, 100), free)))
    return cases


def outcome(cls: type, lengths: list[int], last: list[int], free: list[int]) -> Any:
    allocator = bare_allocator(cls, page_size=4, free_pages=free)
    return decode_once(allocator, lengths, last), allocator.free_pages.tolist()


def reason_to_refuse(cls: type) -> str:
    """Why a class is no allocator to run with; empty when it is one."""
    try:
        for allocator in Allocator:
            variant_of(cls, allocator)
    except UnexpectedAllocator as error:
        return str(error)
    return ""


class OtherArguments(INSTALLED):
    def alloc_decode(self, seq_lens: Any, last_loc: Any) -> Any:
        return super().alloc_decode(seq_lens, seq_lens, last_loc)


class OtherLocations(INSTALLED):
    def alloc_decode(self, *args: Any) -> Any:
        out = super().alloc_decode(*args)
        return None if out is None else out + 1


class NeverShort(INSTALLED):
    def alloc_decode(self, seq_lens: Any, seq_lens_cpu: Any, last_loc: Any) -> Any:
        if len(self.free_pages) == 0:
            return last_loc
        return super().alloc_decode(seq_lens, seq_lens_cpu, last_loc)


class FailsWithSlack(INSTALLED):
    def alloc_decode(self, *args: Any) -> Any:
        raise IndexError("index 4 is out of bounds")


class FailsOtherwiseWhenTight(INSTALLED):
    def alloc_decode(self, *args: Any) -> Any:
        if len(self.free_pages) == 1 and len(args[0]) == 2 and args[0][0] == 5:
            raise RuntimeError("vector core exception")
        return super().alloc_decode(*args)


class WrongWhenTight(INSTALLED):
    def alloc_decode(self, *args: Any) -> Any:
        if len(self.free_pages) == 1 and len(args[0]) == 2 and args[0][0] == 5:
            return args[2].int()
        return super().alloc_decode(*args)


class OtherConstructor(INSTALLED):
    def __init__(self, config: Any) -> None:
        super().__init__(**config)


UNEXPECTED = [
    OtherArguments,
    OtherLocations,
    NeverShort,
    FailsWithSlack,
    FailsOtherwiseWhenTight,
    WrongWhenTight,
    OtherConstructor,
]


if __name__ == "__main__":
    main()
