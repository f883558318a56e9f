"""Which release of SGLang has which rules (pure): the one table to edit when a new release was read.

To add a release, add a line to `RELEASES`: its version, and the rules that it changed. Of a rule that never differed
before the older releases' value goes to `oldest`, and the new one becomes the default in `rules.py`. What no field of
`rules.py` says yet is a new field there, and a line in the formula that asks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import InvalidVersion, Version

from .rules import Rules


@dataclass(frozen=True)
class ReleaseRules:
    """The rules that are taken for an engine.

    Attributes:
        release: the release that has them.
        assumed: the engine's own version was not read, so it may have others.
    """

    rules: Rules
    release: str
    assumed: bool


@dataclass(frozen=True)
class Releases:
    """A table of releases.

    Attributes:
        oldest: the rules before the first change.
        changed: every release that was read, oldest first, with the fields of `Rules` that it changed.
    """

    oldest: Rules
    changed: Mapping[str, Mapping[str, Any]]

    def with_release(self, version: str, **fields: Any) -> Releases:
        """The same table with one more release at its end."""
        return replace(self, changed={**self.changed, version: fields})

    def rules_for(self, version: str | None) -> ReleaseRules:
        """The rules of an engine.

        A local build (`0.5.23+ascend`) has the rules of its release. A pre-release (`0.5.24rc1`) and a post-release
        (`0.5.23.post1`) take the rules of the release that they are named after, as an assumption: between the two a
        rule may have changed. An unknown newer release takes the newest rules, an older one the oldest, one in between
        those of the release before it: all assumed.

        Args:
            version: SGLang's own. None, or what is no version, is taken for an unknown newer one.
        """
        read = {Version(release): release for release in self.changed}
        own = _parsed(version)
        if own is None:
            taken = max(read)
        else:
            taken = max((release for release in read if release <= Version(own.base_version)), default=min(read))
        exact = own is not None and Version(own.public) in read
        return ReleaseRules(self._rules_of(taken), read[taken], assumed=not exact)

    @property
    def newest(self) -> Rules:
        return self.rules_for(None).rules

    @property
    def different(self) -> Mapping[str, Rules]:
        """All rules that differ, oldest first, each by the first release that has them."""
        first: dict[Rules, str] = {}
        for release in self.changed:
            first.setdefault(self._rules_of(Version(release)), release)
        return {release: rules for rules, release in first.items()}

    def first_with(self, rules: Rules) -> str | None:
        """The first release that has these rules; None when none has."""
        return next((release for release, known in self.different.items() if known == rules), None)

    def others(self, rules: Rules) -> Sequence[Rules]:
        """All rules that differ from these, newest first."""
        return [other for other in reversed([*self.different.values()]) if other != rules]

    def _rules_of(self, version: Version) -> Rules:
        rules = self.oldest
        for release, fields in self.changed.items():
            if Version(release) <= version:
                rules = replace(rules, **fields)
        return rules


def _parsed(version: str | None) -> Version | None:
    try:
        return None if version is None else Version(version)
    except (InvalidVersion, ValueError):  # Python reads no number of thousands of digits
        return None


RELEASES = Releases(
    oldest=Rules(
        ended_splits_at_prompt=False,
        running_splits_at_prompt=False,
        rows_about_to_end_sit_out=False,
        empty_batch_opens_admission=False,
        ended_rows_leave_before_admission=False,
        spent_chunk_ends_pass=False,
    ),
    changed={
        "0.5.17": {},
        "0.5.18": {},
        "0.5.19": {},
        "0.5.20": {"ended_splits_at_prompt": True},
        "0.5.21": {},
        "0.5.22": {
            "rows_about_to_end_sit_out": True,
            "empty_batch_opens_admission": True,
            "running_splits_at_prompt": True,
        },
        "0.5.23": {"ended_rows_leave_before_admission": True, "spent_chunk_ends_pass": True},
    },
)
NEWEST = RELEASES.newest


def rules_for(version: str | None) -> ReleaseRules:
    """The rules of an engine, by SGLang's own version; see `Releases.rules_for`."""
    return RELEASES.rules_for(version)
