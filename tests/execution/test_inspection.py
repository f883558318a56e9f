"""Claims about a run's inspection: what it says of itself when witnesses are off, and that a finding is told once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from loadgen.clock import REAL
from loadgen.http.client import GenerateRequest
from loadgen.http.connection import ConnectionLost
from loadgen.http.logprobs import Scored
from loadgen.requests.outcome import Completion, RequestOutcome
from loadgen.requests.planned_request import PlannedRequest
from loadgen.requests.prompts import PromptMaker
from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from loadgen.sglang.shape import Shape
from service.engine.model_facts import ModelFacts
from service.execution.inspection import Inspection, starve_seconds
from service.execution.recording import Recording
from service.runs.model import Measures, WitnessMeasures
from service.spec.parsing import parse_spec
from tests.fake_executor import ENGINE
from tests.loadgen.checks.test_calibration import answer

pytestmark = pytest.mark.anyio

FACTS = ModelFacts(vocabulary=256, end_tokens=(), context_length=4096)


class Client:
    """A server whose answers follow from the prompt, and what was asked of it."""

    def __init__(self, fails: Exception | None = None, flushes: bool = True) -> None:
        self.asked: list[Sequence[GenerateRequest]] = []
        self.flushed = 0
        self.clock = REAL
        self._fails = fails
        self._flushes = flushes

    async def score(self, requests: Sequence[GenerateRequest]) -> list[Scored]:
        if self._fails:
            raise self._fails
        self.asked.append(requests)
        return [answer(request.prompt, request.max_new_tokens) for request in requests]

    async def flush_prefix_cache(self) -> bool:
        self.flushed += 1
        return self._flushes


def inspection(
    client: Client, *, prefix_cache: bool = False, waivers: Sequence[dict[str, str]] = (), **load: Any
) -> Inspection:
    server = ServerConfiguration(Pool(128, 32), prefix_cache=prefix_cache)
    spec = parse_spec({"load": {"witness_share": 1.0, **load}, "waivers": [*waivers]})
    return Inspection(spec, 7, ENGINE, FACTS, server, client, PromptMaker(7, range(256)))  # type: ignore[arg-type]


def answer_witnesses(looks: Inspection, *answers: tuple[int, ...]) -> None:
    """Witnesses of one prompt length with these answers, () for the right one."""
    planned_request = PlannedRequest(Shape(60, 6))
    for number, ids in enumerate(answers, start=1):
        sending = looks.response_checks.sending(number, planned_request)
        assert sending.witness
        told = ids or answer(sending.request.prompt, 6).ids
        call = looks.response_checks.call_started([sending], None)
        looks.response_checks.call_ended(call, [sending], [Completion(RequestOutcome.DONE, 1.0, output_ids=told)])


def told(looks: Inspection) -> WitnessMeasures:
    witnesses = looks.added_to(Measures()).witnesses
    assert witnesses is not None
    return witnesses


async def test_right_answers_are_compared_and_nothing_is_found(recording: Recording) -> None:
    looks = inspection(client := Client())
    await looks.calibrate()
    looks.begin(recording)
    answer_witnesses(looks, (), (), ())
    await looks.compare()
    assert (looks.new_findings(), looks.findings) == ([], ())
    assert (told(looks).off, told(looks).answered, told(looks).compared) == (None, 3, 3)
    assert client.flushed == 0, "there is no prefix cache to forget"


async def test_a_wrong_answer_is_news_once_and_counted(recording: Recording) -> None:
    looks = inspection(Client())
    await looks.calibrate()
    looks.begin(recording)
    answer_witnesses(looks, (), (1, 2, 3), (1, 2, 3, 4))
    await looks.compare()
    (new_findings,) = looks.new_findings()
    assert (new_findings.kind.value, new_findings.prompt_tokens, new_findings.count) == ("wrong_output", 60, 2)
    assert looks.new_findings() == []
    assert looks.added_to(Measures()).findings == 2
    assert told(looks).disagreeing == 1


@pytest.mark.parametrize(("made_by", "scenario"), [("burst", "burst"), (None, "waves")])
async def test_what_is_waived_for_a_load_is_waived_when_its_waves_are_sent_again(
    recording: Recording, made_by: str | None, scenario: str
) -> None:
    when = f"scenario == {scenario}"
    waiver = {"kind": "wrong_output", "when": when, "reason": "known", "link": "https://example.org"}
    options = {"waves": [{"requests": "60+6"}], **({"made_by": made_by} if made_by else {})}
    looks = inspection(Client(), waivers=[waiver], scenario="waves", options=options)
    await looks.calibrate()
    looks.begin(recording)
    answer_witnesses(looks, (1, 2, 3))
    await looks.compare()
    assert [finding.waived for finding in looks.new_findings()] == ["known"]


async def test_with_a_prefix_cache_the_server_forgets_it_before_and_after(recording: Recording) -> None:
    looks = inspection(client := Client(), prefix_cache=True)
    await looks.calibrate()
    assert client.flushed == 1
    looks.begin(recording)
    answer_witnesses(looks, (), (1, 2, 3))
    await looks.compare()
    assert client.flushed == 2 and told(looks).compared == 2
    assert [new_findings.count for new_findings in looks.new_findings()] == [1]


async def test_a_cache_that_is_not_forgotten_would_answer_for_itself(recording: Recording) -> None:
    looks = inspection(Client(flushes=False), prefix_cache=True)
    await looks.calibrate()
    looks.begin(recording)
    answer_witnesses(looks, (1, 2, 3))
    await looks.compare()
    assert (told(looks).compared, told(looks).not_compared, looks.findings) == (0, 1, ())


@pytest.mark.parametrize("fails", [ConnectionLost("gone"), ValueError("HTTP 400")], ids=repr)
async def test_a_calibration_that_fails_turns_witnesses_off_with_the_reason(
    recording: Recording, fails: Exception
) -> None:
    looks = inspection(Client(fails))
    await looks.calibrate()
    looks.begin(recording)
    assert not looks.response_checks.sending(1, PlannedRequest(Shape(60, 6))).witness
    await looks.compare()
    assert str(fails) in (told(looks).off or "")


async def test_no_share_is_no_witness_and_no_question(recording: Recording) -> None:
    looks = inspection(client := Client(), witness_share=0)
    await looks.calibrate()
    looks.begin(recording)
    await looks.compare()
    assert client.asked == [] and told(looks).off == "the spec asks for none"


def test_a_request_starves_before_the_engine_hangs() -> None:
    assert starve_seconds(parse_spec({})) == 10
    assert starve_seconds(parse_spec({"engine": {"hang_seconds": 5}})) == 2.5
    assert starve_seconds(parse_spec({"load": {"starve_seconds": 4}})) == 4
