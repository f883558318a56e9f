"""Client of SGLang's native `/generate`, which tells every outcome apart.

HTTP 200 is not success there: aborts and errors come in band, in a 200 answer or inside a stream.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..clock import REAL, Clock
from ..requests.outcome import Completion, RequestOutcome
from .agreement import StreamedIds, contradiction, output_ids
from .connection import HttpAnswer, HttpClient, HttpError, Silence
from .logprobs import PARAMETERS, Scored, read_scored
from .stream import StreamReader, TokenTimes, meta_of, new_tokens_of, read_json

_PATH = "/generate"
_FLUSH_PATH = "/flush_cache"
_OK = 200
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
        timeout: seconds without a byte from the server after which a request counts as timed out. A batch call is
            answered when its last request is, which under pressure may take minutes; whether the server hangs tells
            who watches it.
        incremental_streams: whether the server was launched with `--incremental-streaming-output`.
        clock: by which latencies are measured. The time-out of a connection is by the machine's.
    """

    base_url: str
    timeout: float = 900.0
    sampling: Sampling = field(default_factory=Sampling)
    incremental_streams: bool = False
    clock: Clock = REAL

    def __post_init__(self) -> None:
        self._http = HttpClient(self.base_url, self.timeout)

    async def send_together(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """Send requests in one call, in order, and wait for all of them. One completion a request, in that order."""
        began = self.clock.now()
        body = {
            "input_ids": [list(request.prompt) for request in requests],
            "sampling_params": [self.sampling.parameters(request.max_new_tokens) for request in requests],
        }
        try:
            answer = await self._http.post(_PATH, _encoded(body))
            if answer.status != _OK:
                return [_refusal(answer, self.clock.now() - began)] * len(requests)
            answers = read_json(answer.body)
        except (HttpError, ValueError) as error:
            return [_failure(error, self.clock.now() - began)] * len(requests)
        seconds = self.clock.now() - began
        if not isinstance(answers, list) or len(answers) != len(requests):
            return [_in_band_error(answers, seconds)] * len(requests)
        return [judge(answer, request, seconds) for answer, request in zip(answers, requests, strict=True)]

    async def score(self, requests: Sequence[GenerateRequest]) -> list[Scored]:
        """Ask for answers with the probabilities of their tokens, all in one call.

        Raises:
            HttpError: there was no answer.
            ValueError: the server refused, or what it answered is not of SGLang's form.
        """
        body = {
            "input_ids": [list(request.prompt) for request in requests],
            "sampling_params": [self.sampling.parameters(request.max_new_tokens) for request in requests],
            **PARAMETERS,
        }
        answer = await self._http.post(_PATH, _encoded(body))
        answers = read_json(answer.body) if answer.status == _OK else None
        if not isinstance(answers, list) or len(answers) != len(requests):
            raise ValueError(f"HTTP {answer.status}: {answer.body[:_DETAIL_CHARACTERS].decode(errors='replace')}")
        return [read_scored(one) for one in answers]

    async def flush_prefix_cache(self) -> bool:
        """Have an idle server forget its prefix cache. Whether it did.

        Raises:
            HttpError: there was no answer.
        """
        return (await self._http.post(_FLUSH_PATH, b"{}")).status == _OK

    async def send_streamed(
        self, request: GenerateRequest, hang_up_tokens: int | None = None, tokens: TokenTimes | None = None
    ) -> Completion:
        """Send one request and read its answer as a stream, which tells when the first token came.

        Args:
            hang_up_tokens: new tokens after which to hang up; None reads to the end.
            tokens: is told of the tokens as they come.
        """
        began = self.clock.now()
        body = {
            "input_ids": list(request.prompt),
            "sampling_params": self.sampling.parameters(request.max_new_tokens),
            "stream": True,
        }
        stream = StreamReader(began, hang_up_tokens, self.incremental_streams, tokens, self.clock.now)
        try:
            answer = await self._http.post(_PATH, _encoded(body), stream.take)
            if answer.status != _OK:
                return _refusal(answer, self.clock.now() - began)
        except ValueError as error:
            return _failure(error, self.clock.now() - began)
        except HttpError as error:
            # After its end mark a stream has said all that it has to say.
            if not stream.ended:
                return _failure(error, self.clock.now() - began)
        if stream.error is not None:
            return _in_band_error(stream.error, self.clock.now() - began)
        if stream.enough:
            return hung_up(self.clock.now() - began, stream.tokens)
        if not stream.ended:
            return Completion(RequestOutcome.LOST, self.clock.now() - began, "the stream ended without its end mark")
        return judge(stream.last, request, self.clock.now() - began, stream.tokens, stream.ids)


def judge(
    answer: Any,
    request: GenerateRequest,
    passed_seconds: float,
    tokens: TokenTimes | None = None,
    streamed: StreamedIds | None = None,
) -> Completion:
    """How a request ended, from SGLang's answer to it: any JSON value, as it is not to be relied on.

    Args:
        passed_seconds: since it was sent.
        tokens: when its tokens came, where that is known.
        streamed: the ids that its stream told, where it was one.
    """
    meta = meta_of(answer)
    finish = meta.get("finish_reason")
    if not isinstance(finish, Mapping):
        return _in_band_error(answer, passed_seconds)
    new_tokens = new_tokens_of(answer)
    outcome, detail = RequestOutcome.DONE, ""
    if finish.get("type") == "abort":
        outcome, detail = RequestOutcome.ABORTED, str(finish.get("message", finish))
    elif finish.get("type") == "length" and new_tokens < request.max_new_tokens:
        outcome, detail = RequestOutcome.TRUNCATED, f"{new_tokens} new tokens of {request.max_new_tokens}"
    ids = streamed.ids if streamed is not None else output_ids(answer)
    contradicted = streamed.contradiction if streamed is not None else ""
    # One call is answered when the last of its requests is, so of the others only the server can tell when they ended.
    seconds = meta.get("e2e_latency") if tokens is None else None
    if not isinstance(seconds, float) or not math.isfinite(seconds):
        seconds = passed_seconds
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


def hung_up(seconds: float, tokens: TokenTimes | None = None) -> Completion:
    """The end of a request whose client hung up, as planned."""
    return Completion(
        RequestOutcome.HUNG_UP,
        seconds,
        new_tokens=tokens.count if tokens else 0,
        first_token_seconds=tokens.first_seconds if tokens else None,
    )


def _in_band_error(answer: Any, seconds: float) -> Completion:
    return Completion(RequestOutcome.ERROR, seconds, json.dumps(answer, default=str)[:_DETAIL_CHARACTERS])


def _encoded(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _refusal(answer: HttpAnswer, seconds: float) -> Completion:
    text = f"HTTP {answer.status}: {answer.body.decode(errors='replace')}"
    return Completion(RequestOutcome.REFUSED, seconds, text[:_DETAIL_CHARACTERS])


def _failure(error: Exception, seconds: float) -> Completion:
    if isinstance(error, Silence):
        outcome = RequestOutcome.TIMED_OUT
    elif isinstance(error, HttpError):
        outcome = RequestOutcome.LOST
    else:
        outcome = RequestOutcome.ERROR
    return Completion(outcome, seconds, f"{type(error).__name__}: {error}"[:_DETAIL_CHARACTERS])
