"""When an engine is ready: our own server has answered a real, short completion, and the plugin has recorded it.

`/health` is not asked. It can answer 200 while generation is dead, and 503 while the server is merely full.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

import anyio
import httpx

from service.engine.process.command import LaunchPlan
from service.engine.process.process import EngineProcess
from service.errors import EngineError
from service.plugin.flight import Identity, NotAFlightFile
from service.plugin.flight_reader import FlightReader

DEFAULT_DEADLINE_SECONDS = 300.0
_POLL_SECONDS = 0.1
_COMPLETION_SECONDS = 60.0
# The first token comes out of the prefill; the others take a decode step each.
_NEW_TOKENS = 8
_PROMPT = [1, 2, 3, 4]
_REFUSED_BY_PLUGIN = re.compile(r"lastpage: this engine cannot be instrumented.*")


class EngineNotReady(EngineError):
    """The engine does not serve: it died, took too long, or somebody else answers.

    Attributes:
        reason: one line.
        log_tail: the last lines of the engine's log.
    """

    def __init__(self, reason: str, log_tail: str) -> None:
        super().__init__(f"{reason}\n{log_tail}" if log_tail else reason)
        self.reason = reason
        self.log_tail = log_tail


class EngineRefused(EngineNotReady):
    """The engine serves, or could, but what it records cannot be relied on."""


@dataclass(frozen=True)
class Ready:
    """A serving engine.

    Attributes:
        ready_ns: when all this was known, by the plan's clock, nanoseconds: the recorder's clock.
        scheduler_pid: the process in which the allocator runs.
        pool_pages: pages in the pool, as the allocator has them.
        pool_tokens: the server's own `max_total_num_tokens`.
    """

    ready_ns: int
    scheduler_pid: int
    sglang_version: str | None
    page_size: int
    pool_pages: int
    pool_tokens: int | None


async def wait_ready(
    plan: LaunchPlan, process: EngineProcess, *, deadline_seconds: float = DEFAULT_DEADLINE_SECONDS
) -> Ready:
    """Wait until the engine serves, and from then on count its workers' death as its death.

    Raises:
        EngineNotReady: it died, did not serve within the deadline, or another server answers on its port.
        EngineRefused: it serves, but the plugin is not in it, or the pool is not the planned one.
    """
    # trust_env: a proxy from the environment must not catch what is meant for 127.0.0.1.
    async with httpx.AsyncClient(base_url=plan.url, trust_env=False, timeout=5.0) as client:
        waiting = _Waiting(plan, process, client)
        with anyio.move_on_after(deadline_seconds):
            await waiting.until_ours()
            await waiting.until_completion()
            return await waiting.ready()
        raise EngineNotReady(f"not ready within {deadline_seconds:g} s: {waiting.state}", process.log_tail())


class _Waiting:
    """One wait. `state` says what was last seen, for the error."""

    def __init__(self, plan: LaunchPlan, process: EngineProcess, client: httpx.AsyncClient) -> None:
        self.state = "nothing listens on the port yet"
        self._plan = plan
        self._process = process
        self._client = client

    async def until_ours(self) -> None:
        """Until the server on the port is the one that we launched."""
        while True:
            self._check_alive()
            try:
                answer = await self._client.get("/model_info")
            except httpx.TransportError as error:
                self.state = f"no answer on port {self._plan.port} ({type(error).__name__})"
            else:
                self._check_ours(answer)
                return
            await anyio.sleep(_POLL_SECONDS)

    async def until_completion(self) -> None:
        """Until a completion of a few tokens has come back whole."""
        while True:
            self._check_alive()
            problem = await self._complete()
            if problem is None:
                return
            self.state = f"the server answers, a completion does not come back: {problem}"
            await anyio.sleep(_POLL_SECONDS)

    async def ready(self) -> Ready:
        """What is known of the engine now that it serves."""
        info = await self._server_info()
        workers = self._process.workers()
        pool_tokens = info.get("max_total_num_tokens")
        identity = self._recording()
        workers[identity.pid] = "scheduler"
        self._process.watch(workers)
        return Ready(
            ready_ns=self._plan.clock.now_ns(),
            scheduler_pid=identity.pid,
            sglang_version=info.get("version"),
            page_size=identity.page_size,
            pool_pages=identity.pool_pages,
            pool_tokens=pool_tokens,
        )

    def _check_alive(self) -> None:
        death = self._process.death()
        if death is None:
            return
        tail = self._process.log_tail()
        refusal = _REFUSED_BY_PLUGIN.search(tail)
        if refusal is not None:
            raise EngineRefused(refusal.group(), tail)
        raise EngineNotReady(f"the engine ended before it was ready: {death}", tail)

    def _check_ours(self, answer: httpx.Response) -> None:
        try:
            name = answer.json()["served_model_name"]
        except (json.JSONDecodeError, KeyError, TypeError):
            name = None
        if name != self._plan.served_model_name:
            who = f"a server of the model {name!r}" if name else f"HTTP {answer.status_code} to /model_info"
            raise EngineNotReady(
                f"port {self._plan.port} is answered by another server than ours ({who}); "
                "stop it, or choose another port",
                self._process.log_tail(),
            )

    async def _complete(self) -> str | None:
        """Ask for a completion; why it is none, or None when it came back whole."""
        request = {
            "input_ids": _PROMPT,
            "sampling_params": {"max_new_tokens": _NEW_TOKENS, "temperature": 0, "ignore_eos": True},
        }
        try:
            answer = await self._client.post("/generate", json=request, timeout=_COMPLETION_SECONDS)
        except httpx.TransportError as error:
            return type(error).__name__
        if answer.status_code != httpx.codes.OK:
            return f"HTTP {answer.status_code}: {answer.text[:200]}"
        return _incomplete(answer)

    async def _server_info(self) -> dict[str, Any]:
        answer = await self._client.get("/server_info", timeout=_COMPLETION_SECONDS)
        info: dict[str, Any] = answer.json() if answer.status_code == httpx.codes.OK else {}
        return info

    def _recording(self) -> Identity:
        """The recording's identity, when it is one of this plan's engine and decode steps are in it."""
        plan = self._plan
        try:
            reader = FlightReader(plan.flight)
        except FileNotFoundError:
            self._refuse("the engine serves, but the probe has recorded nothing")
        except NotAFlightFile as error:
            self._refuse(str(error))
        identity, totals = reader.identity, reader.totals()
        reader.close()
        if totals.decode_steps == 0:
            self._refuse("the engine decodes, but not through the allocator that the probe watches")
        if identity.page_size != plan.page_size:
            self._refuse(f"page size: the engine's is {identity.page_size}, planned was {plan.page_size}")
        if plan.pool_pages is not None and identity.pool_pages != plan.pool_pages:
            self._refuse(f"pool: the engine's has {identity.pool_pages} pages, planned were {plan.pool_pages}")
        return identity

    def _refuse(self, reason: str) -> NoReturn:
        raise EngineRefused(reason, self._process.log_tail())


def _incomplete(answer: httpx.Response) -> str | None:
    """Why a 200 from /generate is no completion (SGLang reports aborts in band), or None."""
    try:
        meta = answer.json()["meta_info"]
        finish, tokens = meta["finish_reason"], meta["completion_tokens"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return f"not a completion: {answer.text[:200]}"
    if not isinstance(finish, dict) or finish.get("type") == "abort":
        return f"finish reason {finish}"
    return None if tokens == _NEW_TOKENS else f"{tokens} tokens instead of {_NEW_TOKENS}"
