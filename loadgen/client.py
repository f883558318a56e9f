"""httpx client of SGLang's native `/generate`, which tells every outcome apart.

HTTP 200 is not success there: aborts and errors come in band, in a 200 answer or inside a stream.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from .agreement import StreamedIds, contradiction, output_ids
from .outcomes import Completion, Outcome

_DETAIL_CHARACTERS = 300


@dataclass(frozen=True)
class GenerateRequest:
    """One request: the prompt's token ids, and how many new tokens to ask for."""

    prompt: Sequence[int]
    max_new_tokens: int


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters that all requests share.

    Attributes:
        never: token ids that must not be sampled, the model's end-of-sequence ids, so that no answer ends before its
            length. `ignore_eos` would do the same, but SGLang admits such requests by a rule that never over-commits.
    """

    never: Sequence[int] = ()
    temperature: float = 0.0

    def parameters(self, max_new_tokens: int) -> dict[str, Any]:
        parameters: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": self.temperature}
        if self.never:
            parameters["logit_bias"] = {str(token): -1e9 for token in self.never}
        return parameters


@dataclass
class GenerateClient:
    """Sends requests to one server.

    Args:
        base_url: such as `http://127.0.0.1:30000`.
        timeout: seconds without a byte from the server after which a request counts as timed out.
        incremental_streams: whether the server was launched with `--incremental-streaming-output`.
    """

    base_url: str
    timeout: float = 60.0
    sampling: Sampling = field(default_factory=Sampling)
    incremental_streams: bool = False

    def __post_init__(self) -> None:
        self._http = httpx.AsyncClient(
            base_url=self.base_url,
            timeout=httpx.Timeout(self.timeout, connect=5.0),
            # Any number of calls may be open. Few idle connections are kept: the pool looks at each for every call.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
            trust_env=False,  # a proxy has no business between us and our own server
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    async def send_together(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """Send requests in one call, in order, and wait for all of them. One completion a request, in that order."""
        began = time.monotonic()
        body = {
            "input_ids": [list(request.prompt) for request in requests],
            "sampling_params": [self.sampling.parameters(request.max_new_tokens) for request in requests],
        }
        try:
            response = await self._http.post("/generate", json=body)
            if response.status_code != httpx.codes.OK:
                return [_refusal(response.status_code, response.text, began)] * len(requests)
            answers = response.json()
        except (httpx.HTTPError, ValueError) as error:
            return [_failure(error, began)] * len(requests)
        if not isinstance(answers, list) or len(answers) != len(requests):
            return [_in_band_error(answers, began)] * len(requests)
        return [judge(answer, request, began) for answer, request in zip(answers, requests, strict=True)]

    async def send_streamed(self, request: GenerateRequest, hang_up_tokens: int | None = None) -> Completion:
        """Send one request and read its answer as a stream, which tells when the first token came.

        Args:
            hang_up_tokens: new tokens after which to hang up; None reads to the end.
        """
        began = time.monotonic()
        body = {
            "input_ids": list(request.prompt),
            "sampling_params": self.sampling.parameters(request.max_new_tokens),
            "stream": True,
        }
        last: Any = None
        tokens = TokenTimes(began)
        ids = StreamedIds(self.incremental_streams)
        ended = False
        try:
            async with self._http.stream("POST", "/generate", json=body) as response:
                if response.status_code != httpx.codes.OK:
                    return _refusal(response.status_code, (await response.aread()).decode(errors="replace"), began)
                async for line in response.aiter_lines():
                    if not line.startswith("data:"):
                        continue
                    data = line.removeprefix("data:").strip()
                    if data == "[DONE]":
                        ended = True
                        break
                    last = json.loads(data)
                    tokens.seen(_new_tokens(last), time.monotonic())
                    ids.seen(last)
                    if isinstance(last, Mapping) and "error" in last:
                        return _in_band_error(last, began)
                    if hang_up_tokens is not None and _new_tokens(last) >= hang_up_tokens:
                        return hung_up(began, tokens)
        except (httpx.HTTPError, ValueError) as error:
            return _failure(error, began)
        if not ended:
            return Completion(Outcome.LOST, time.monotonic() - began, "the stream ended without its end mark")
        return judge(last, request, began, tokens, ids)


class TokenTimes:
    """When the tokens of a streamed answer came.

    Attributes:
        first_seconds: from sending to the first token; None before it.
        gaps: seconds between one token and the next. Tokens that came together share the time since those before them.
        count: how many came.
    """

    def __init__(self, began: float) -> None:
        self.first_seconds: float | None = None
        self.gaps: list[float] = []
        self._began = began
        self.count = 0
        self._last = began

    def seen(self, tokens: int, at: float) -> None:
        """So many tokens had come at that time, by the monotonic clock."""
        new = tokens - self.count
        if new <= 0:
            return
        if self.first_seconds is None:
            self.first_seconds = at - self._began
        else:
            self.gaps += [(at - self._last) / new] * new
        self.count, self._last = tokens, at


def judge(
    answer: Any,
    request: GenerateRequest,
    began: float,
    tokens: TokenTimes | None = None,
    streamed: StreamedIds | None = None,
) -> Completion:
    """How a request ended, from SGLang's answer to it: any JSON value, as it is not to be relied on.

    Args:
        began: when it was sent, by the monotonic clock.
        tokens: when its tokens came, where that is known.
        streamed: the ids that its stream told, where it was one.
    """
    meta = _meta(answer)
    finish = meta.get("finish_reason")
    if not isinstance(finish, Mapping):
        return _in_band_error(answer, began)
    new_tokens = _new_tokens(answer)
    outcome, detail = Outcome.DONE, ""
    if finish.get("type") == "abort":
        outcome, detail = Outcome.ABORTED, str(finish.get("message", finish))
    elif finish.get("type") == "length" and new_tokens < request.max_new_tokens:
        outcome, detail = Outcome.TRUNCATED, f"{new_tokens} new tokens of {request.max_new_tokens}"
    ids = streamed.ids if streamed is not None else output_ids(answer)
    contradicted = streamed.contradiction if streamed is not None else ""
    seconds = meta.get("e2e_latency")
    if not isinstance(seconds, float) or not math.isfinite(seconds):
        seconds = time.monotonic() - began
    return Completion(
        outcome,
        seconds=seconds,
        detail=detail[:_DETAIL_CHARACTERS],
        new_tokens=new_tokens,
        first_token_seconds=tokens.first_seconds if tokens else None,
        token_gaps=tuple(tokens.gaps) if tokens else (),
        output_ids=tuple(ids or ()),
        contradiction=contradicted or contradiction(ids, new_tokens, finish, request.max_new_tokens),
    )


def hung_up(began: float, tokens: TokenTimes | None = None) -> Completion:
    """The end of a request whose client hung up, as planned."""
    return Completion(
        Outcome.HUNG_UP,
        time.monotonic() - began,
        new_tokens=tokens.count if tokens else 0,
        first_token_seconds=tokens.first_seconds if tokens else None,
    )


def _meta(answer: Any) -> Mapping[str, Any]:
    meta = answer.get("meta_info") if isinstance(answer, Mapping) else None
    return meta if isinstance(meta, Mapping) else {}


def _new_tokens(answer: Any) -> int:
    tokens = _meta(answer).get("completion_tokens")
    return tokens if isinstance(tokens, int) else 0


def _in_band_error(answer: Any, began: float) -> Completion:
    return Completion(Outcome.ERROR, time.monotonic() - began, json.dumps(answer, default=str)[:_DETAIL_CHARACTERS])


def _refusal(status: int, text: str, began: float) -> Completion:
    return Completion(Outcome.REFUSED, time.monotonic() - began, f"HTTP {status}: {text}"[:_DETAIL_CHARACTERS])


def _failure(error: Exception, began: float) -> Completion:
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        outcome = Outcome.TIMED_OUT
    elif isinstance(error, httpx.HTTPError):
        outcome = Outcome.LOST
    else:
        outcome = Outcome.ERROR
    return Completion(outcome, time.monotonic() - began, f"{type(error).__name__}: {error}"[:_DETAIL_CHARACTERS])
