"""Rules of releases, for tests that hold for each of them."""

from __future__ import annotations

from loadgen.sglang.releases import NEWEST, RELEASES, rules_for

OLD = rules_for("0.5.18").rules
"""Those of the last release without the clamp."""

NEW = NEWEST

DIFFERENT = list(RELEASES.different.values())
NAMES = list(RELEASES.different)
