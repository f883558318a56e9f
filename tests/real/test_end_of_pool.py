"""What a real server does with each prompt length near the end of its pool: `loadgen.sglang.limits` says it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadgen.sglang.launch_arguments import over_committing
from loadgen.sglang.limits import (
    longest_accepted_prompt,
    longest_admitted_prompt,
    longest_answer,
    longest_answered_prompt,
)
from loadgen.sglang.pages import Pool
from service.engine.process.process import EngineProcess
from service.engine.process.readiness import wait_ready
from tests.real.launches import rehearsal_plan

pytestmark = [pytest.mark.real, pytest.mark.anyio, pytest.mark.timeout(600)]

POOL = Pool(128, 32)
# Ten times what the longest prompt takes on an idle machine.
PATIENCE_SECONDS = 5.0


async def test_prompts_are_answered_then_only_prefilled_then_never_served_then_refused(tmp_path: Path) -> None:
    needs = over_committing(4, POOL)
    plan = rehearsal_plan(tmp_path, scenario_arguments=list(needs.arguments), scenario_environment=needs.environment)
    async with await EngineProcess.start(plan) as process:
        await wait_ready(plan, process)
        async with httpx.AsyncClient(base_url=plan.url, trust_env=False) as client:

            async def ask(prompt: int, answer: int, seconds: float = 60.0) -> httpx.Response:
                body: dict[str, Any] = {
                    "input_ids": random.Random(prompt).choices(range(256), k=prompt),
                    "sampling_params": {"max_new_tokens": answer, "temperature": 0},
                }
                return await client.post("/generate", json=body, timeout=seconds)

            async def answered(prompt: int, answer: int) -> int:
                meta = (await ask(prompt, answer)).raise_for_status().json()["meta_info"]
                assert meta["finish_reason"]["type"] == "length"
                return int(meta["completion_tokens"])

            last = longest_answered_prompt(POOL)
            for prompt in (1, 128, 129, last - 1, last):
                assert await answered(prompt, 2) == 2
            assert await answered(last, 1000) == longest_answer(last, POOL) == 127

            for prompt in (last + 1, longest_admitted_prompt(POOL) - 1, longest_admitted_prompt(POOL)):
                assert await answered(prompt, 2) == 0

            for prompt in (longest_admitted_prompt(POOL) + 1, longest_accepted_prompt(POOL)):
                with pytest.raises(httpx.ReadTimeout):
                    await ask(prompt, 2, PATIENCE_SECONDS)
                # It goes on when that client is gone.
                assert await answered(5, 2) == 2

            for prompt in (longest_accepted_prompt(POOL) + 1, POOL.tokens, POOL.tokens + 1):
                assert (await ask(prompt, 2)).status_code == httpx.codes.BAD_REQUEST
