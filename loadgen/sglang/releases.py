"""Releases of SGLang that differ in a rule (pure)."""

from __future__ import annotations

import enum


class Release(enum.Enum):
    """Releases that differ in a rule that is modelled."""

    V0_5_18 = "0.5.18"
    V0_5_23 = "0.5.23"
