"""What a run finds wrong with an engine that does not crash: witnesses, fair service, and the ledger of findings."""

from __future__ import annotations

from datetime import datetime, timezone

import anyio

from loadgen.checks.calibration import Calibration, calibrate
from loadgen.checks.fairness import Fairness, Work
from loadgen.checks.findings import Occurrence
from loadgen.checks.response_checks import ResponseChecks
from loadgen.checks.witness import Witnesses, batches
from loadgen.clock import REAL, Clock
from loadgen.http.client import GenerateClient, GenerateRequest
from loadgen.http.connection import HttpError
from loadgen.requests.prompts import PromptMaker
from loadgen.sglang.server import ServerConfiguration
from service.engine.model_facts import ModelFacts
from service.execution.ledger import Ledger, counts
from service.execution.recording import Recording
from service.execution.repro import maker_of
from service.runs.model import EngineInfo, Finding, Measures, WitnessMeasures
from service.spec.spec import RunSpec

CALIBRATION_SECONDS = 120.0
_COMPARING_SECONDS = 30.0
_MOST_TOGETHER = 8


def starve_seconds(spec: RunSpec) -> float:
    """Seconds after which a request counts as starved. Before a hang is told of there has to be time to look."""
    return spec.load.starve_seconds or spec.engine.hang_seconds / 2


class Inspection:
    """Looks at the answers of one run's engine.

    Attributes:
        response_checks: for the driver; there is none before `calibrate` is over.
    """

    def __init__(
        self,
        spec: RunSpec,
        seed: int,
        engine: EngineInfo,
        facts: ModelFacts,
        server: ServerConfiguration,
        client: GenerateClient,
        prompts: PromptMaker,
        clock: Clock = REAL,
    ) -> None:
        self._spec = spec
        self._clock = clock
        self._seed = seed
        self._facts = facts
        self._server = server
        self._client = client
        self._prompts = prompts
        self._calibration = Calibration(off="" if spec.load.witness_share else "the spec asks for none")
        self._witnesses: Witnesses | None = None
        self.response_checks = ResponseChecks(prompts, clock=clock.now)
        self._new_findings: list[Finding] = []
        self._ledger = Ledger(
            spec.waivers,
            {
                # What is known of a load is known of its waves when they are sent again.
                "scenario": maker_of(spec.load)[0] or spec.load.scenario,
                "release": engine.sglang_version,
                "allocator": engine.allocator.value,
                "profile": engine.profile.value,
                "page_size": spec.engine.page_size,
                "pool_pages": spec.engine.pool_pages,
            },
        )

    async def calibrate(self) -> None:
        """Before the load: find out whether answers can be held against each other."""
        if self._calibration.off:
            return
        pool, most = self._server.pool, self._facts.longest_request
        longest = pool.tokens if most is None else min(pool.tokens, most)
        self._calibration = Calibration(off=f"the calibration took longer than {CALIBRATION_SECONDS:g} s")
        with anyio.move_on_after(CALIBRATION_SECONDS):
            try:
                self._calibration = await calibrate(
                    self._client.score, pool, longest, self._seed, range(self._facts.vocabulary)
                )
                if self._server.prefix_cache:
                    # The load is to meet an empty pool.
                    await self._client.flush_prefix_cache()
            except (HttpError, ValueError) as error:
                self._calibration = Calibration(off=f"the calibration failed: {error}")

    def begin(self, recording: Recording) -> ResponseChecks:
        """The load begins; what is to look at it."""

        def work() -> Work:
            totals = recording.totals()
            return Work(totals.decode_steps, totals.prefill_batches, totals.retractions)

        if not self._calibration.off:
            self._witnesses = Witnesses(
                self._prompts,
                self._seed,
                self._spec.load.witness_share,
                shared_prompts=not self._server.prefix_cache,
                margin=self._calibration.margin,
            )
        self.response_checks = ResponseChecks(
            self._prompts,
            self._witnesses,
            Fairness(self._clock.patience(starve_seconds(self._spec), 0.5)),
            work,
            self._clock.now,
        )
        return self.response_checks

    async def compare(self) -> None:
        """After the load, on an idle server that serves: hold the witnesses' answers against those without pressure."""
        self.response_checks.served()
        if self._witnesses is None:
            return
        with anyio.move_on_after(_COMPARING_SECONDS):
            try:
                if self._server.prefix_cache and not await self._client.flush_prefix_cache():
                    return  # the answers would come from the pages that are in question
                await self._compare(self._witnesses)
            except (HttpError, ValueError):
                return  # told as not compared

    async def _compare(self, witnesses: Witnesses) -> None:
        pool = self._server.pool
        questions = [*witnesses.questions()]
        for batch in batches(questions, pool.pages // 2, pool.page_size, _MOST_TOGETHER):
            requests = [GenerateRequest(question.prompt, question.longest) for question in batch]
            for question, known in zip(batch, await self._client.score(requests), strict=True):
                self._take(witnesses.compare(question, known))

    def new_findings(self) -> list[Finding]:
        """Findings of a kind and cause that have not been told yet."""
        self._take(self.response_checks.take())
        new_findings, self._new_findings = self._new_findings, []
        return new_findings

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All so far, as they stand now."""
        return self._ledger.findings

    def added_to(self, measures: Measures) -> Measures:
        """Measures, with what was found."""
        return measures.model_copy(update={**counts(self.findings), "witnesses": self._witness_measures()})

    def _witness_measures(self) -> WitnessMeasures:
        share, calibration, witnesses = self._spec.load.witness_share, self._calibration, self._witnesses
        if witnesses is None:
            return WitnessMeasures(share=share, off=calibration.off or "the load never began")
        return WitnessMeasures(
            share=share,
            noise=calibration.noise,
            margin=calibration.margin,
            answered=witnesses.answered,
            compared=witnesses.compared,
            not_compared=witnesses.not_compared,
            near_ties=witnesses.near_ties,
            disagreeing=witnesses.disagreeing,
        )

    def _take(self, found: list[Occurrence]) -> None:
        now = datetime.now(timezone.utc)
        self._new_findings += [finding for one in found if (finding := self._ledger.add(one, now)) is not None]
