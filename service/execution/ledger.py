"""The findings of a run, folded so that there are few of them however long it is, and held against its waivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from loadgen.checks.findings import Occurrence
from service.runs.model import Finding
from service.spec.waivers import Waiver


class Ledger:
    """Takes findings in.

    Args:
        facts: what conditions of waivers may ask for beside a request's lengths; see `service.spec.waivers`.
    """

    def __init__(self, waivers: Sequence[Waiver], facts: Mapping[str, Any]) -> None:
        self._waivers = waivers
        self._facts = facts
        self._findings: dict[tuple[str, str, Waiver | None], Finding] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All so far: one for each kind, cause and waiver, in the order in which they were met first."""
        return tuple(self._findings.values())

    def add(self, found: Occurrence, at: datetime) -> Finding | None:
        """Take one in. The finding, when there was none of that kind, cause and waiver before it."""
        lengths = {"prompt_tokens": found.prompt_tokens, "max_new_tokens": found.max_new_tokens}
        facts = {**self._facts, **lengths}
        waiver = next((waiver for waiver in self._waivers if waiver.covers(found.kind, facts)), None)
        key = (found.kind.value, found.cause, waiver)
        known = self._findings.get(key)
        if known is not None:
            self._findings[key] = known.model_copy(
                update={
                    "count": known.count + found.count,
                    "last_at": at,
                    "shortest_prompt_tokens": min(known.shortest_prompt_tokens, found.prompt_tokens),
                    "longest_prompt_tokens": max(known.longest_prompt_tokens, found.prompt_tokens),
                }
            )
            return None
        finding = self._findings[key] = Finding(
            kind=found.kind,
            cause=found.cause,
            detail=found.detail,
            at=at,
            last_at=at,
            elapsed_seconds=found.elapsed,
            shortest_prompt_tokens=found.prompt_tokens,
            longest_prompt_tokens=found.prompt_tokens,
            count=found.count,
            waived=waiver.reason if waiver else None,
            link=waiver.link if waiver else None,
            **lengths,
        )
        return finding


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How often something was found that nobody waived, and that somebody did; by the name of the measure."""
    return {
        "findings": sum(finding.count for finding in findings if finding.waived is None),
        "waived_findings": sum(finding.count for finding in findings if finding.waived is not None),
    }
