"""Calls of `/generate`: what is asked for, and the answers in SGLang's form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from service.simulation import answers
from service.simulation.engine import ServedRequest
from service.simulation.http import HttpConnection
from service.simulation.launch import Launch

_DEFAULT_NEW_TOKENS = 128


@dataclass(frozen=True)
class GenerateBody:
    """What a call of `/generate` asks for.

    Attributes:
        prompts: token ids of each request.
        max_new_tokens: of each.
        single: whether one request was asked for by itself, not in a list.
        top_logprobs: how many tokens to tell of with each; 0 for no probabilities.
    """

    prompts: Sequence[list[int]]
    max_new_tokens: Sequence[int]
    single: bool
    stream: bool
    top_logprobs: int
    rids: Sequence[str]

    @classmethod
    def read(cls, body: bytes) -> GenerateBody:
        """
        Raises:
            ValueError: it is not of SGLang's form.
        """
        try:
            given = json.loads(body)
            ids, single = _prompts(given)
            parameters = given.get("sampling_params") or {}
            each = [parameters] * len(ids) if isinstance(parameters, Mapping) else parameters
            rid = given.get("rid")
            rids = rid if isinstance(rid, list) else [rid if single and rid else ""] * len(ids)
            logprobs = bool(given.get("return_logprob"))
            return cls(
                prompts=ids,
                max_new_tokens=[int(one.get("max_new_tokens", _DEFAULT_NEW_TOKENS)) for one in each],
                single=single,
                stream=bool(given.get("stream")),
                top_logprobs=max(1, int(given.get("top_logprobs_num", 0))) if logprobs else 0,
                rids=rids,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _prompts(given: Mapping[str, Any]) -> tuple[list[list[int]], bool]:
    if "text" in given:
        texts = given["text"]
        single = isinstance(texts, str)
        return [list(text.encode()) for text in ([texts] if single else texts)], single
    ids = given["input_ids"]
    single = not ids or not isinstance(ids[0], list)
    return ([ids] if single else ids), single


@dataclass(eq=False)
class OpenCall:
    """One call under way, and the requests in it."""

    generate: GenerateBody
    connection: HttpConnection
    launch: Launch
    requests: list[ServedRequest] = field(default_factory=list)
    _open: int = 0
    _streamed: int = 0
    _text: str = ""

    def begin(self, requests: list[ServedRequest]) -> None:
        self.requests, self._open = requests, len(requests)
        if self.generate.stream:
            self.connection.begin_events()

    def tell(self, now: float) -> None:
        """Send what has come of a streamed answer since the last time."""
        (request,) = self.requests
        request.write()
        fresh = request.answer[self._streamed :]
        if not fresh:
            return
        self._streamed = len(request.answer)
        text = ",".join(map(str, fresh))
        joined = text if self.launch.server.incremental_streams or not self._text else f"{self._text},{text}"
        self._text = joined
        meta = json.dumps(self._meta(request, now), separators=(",", ":"))
        self.connection.event(f'{{"text":"","output_ids":[{joined}],"meta_info":{meta}}}')

    def ended(self, now: float) -> bool:
        """One of its requests has ended. Whether all have; then the call is answered."""
        self._open -= 1
        if self._open:
            return False
        if self.generate.stream:
            if not self._streamed:
                meta = json.dumps(self._meta(self.requests[0], now), separators=(",", ":"))
                self.connection.event(f'{{"text":"","output_ids":[],"meta_info":{meta}}}')
            self.connection.end_events()
        else:
            told = [self._answer(request, now) for request in self.requests]
            self.connection.answer(HTTPStatus.OK, told[0] if self.generate.single else told)
        return True

    def _answer(self, request: ServedRequest, now: float) -> dict[str, Any]:
        return {"text": "", "output_ids": request.answer, "meta_info": self._meta(request, now)}

    def _meta(self, request: ServedRequest, now: float) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": self.generate.rids[self.requests.index(request)] or f"{request.number:032x}",
            "finish_reason": self._finish_reason(request),
            "prompt_tokens": len(request.prompt),
            "completion_tokens": len(request.answer),
            "e2e_latency": (request.ended_at or now) - request.arrived,
        }
        if self.generate.top_logprobs:
            meta |= answers.logprobs(request.answer, self.launch.vocabulary, self.generate.top_logprobs)
        return meta

    def _finish_reason(self, request: ServedRequest) -> dict[str, Any] | None:
        if not request.finished:
            return None
        if request.aborted:
            return {"type": "abort", "message": "Out of memory: no page is left for its next token", "status_code": 503}
        return {"type": "length", "length": len(request.answer)}
