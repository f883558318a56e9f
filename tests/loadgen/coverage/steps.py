"""Decode steps to hold the cells against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A decode step with what decides its cell."""

    batch_size: int = 8
    need: int = 1
    free: int = 1
    trailing: int = 7
    prefill_batches: int = 0
    retractions: int = 0
    evicted_pages: int = 0
    cached: int = 0
