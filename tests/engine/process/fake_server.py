"""Stands in for an SGLang server: answers what readiness asks for, well or badly. One argument: a JSON object.

port, name, flight      as in the launch plan
listen_after            seconds before it listens (0)
completions             what /generate does, one a request, the last one for ever: done, abort, truncated, error, hang
recording               what is in the flight file: steps, idle, none, other_page_size, other_pool
say                     printed first
exit                    instead of all of this: exit with this code
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from service.plugin.flight import AllocationOutcome
from service.plugin.recorder import FlightRecorder

ORDER: dict[str, Any] = json.loads(sys.argv[1])


def record(recording: str) -> None:
    if recording == "none":
        return
    recorder = FlightRecorder(
        ORDER["flight"],
        page_size=64 if recording == "other_page_size" else 128,
        pool_pages=31 if recording == "other_pool" else 32,
        sglang_version="0.5.23",
        allocator="installed",
    )
    if recording != "idle":
        recorder.enter(1, 0, 32, 0)
        recorder.leave(AllocationOutcome.RETURNED)


def completion(kind: str) -> tuple[int, dict[str, Any]]:
    if kind == "hang":
        time.sleep(600)
    if kind == "error":
        return 500, {"error": {"message": "internal error"}}
    if kind == "abort":
        return 200, {"meta_info": {"finish_reason": {"type": "abort", "message": "full"}, "completion_tokens": 0}}
    tokens = 0 if kind == "truncated" else 8
    return 200, {"meta_info": {"finish_reason": {"type": "length", "length": 8}, "completion_tokens": tokens}}


class Handler(BaseHTTPRequestHandler):
    def answer(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path == "/model_info" and ORDER["name"] is not None:
            self.answer(200, {"served_model_name": ORDER["name"]})
        elif self.path == "/server_info":
            self.answer(200, {"version": "0.5.23", "max_total_num_tokens": 4096})
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        planned = ORDER["completions"]
        self.answer(*completion(planned.pop(0) if len(planned) > 1 else planned[0]))

    def log_message(self, format: str, *args: Any) -> None:
        print(format % args, flush=True)


def main() -> None:
    print(ORDER.get("say", "The server is starting"), flush=True)
    if "exit" in ORDER:
        sys.exit(ORDER["exit"])
    if ORDER.get("recording_in_child") and os.fork() == 0:
        record("steps")
        time.sleep(600)
    if not ORDER.get("recording_in_child"):
        record(ORDER.get("recording", "steps"))
    time.sleep(ORDER.get("listen_after", 0))
    while ORDER.get("recording_in_child") and not os.path.exists(ORDER["flight"]):  # noqa: PTH110
        time.sleep(0.01)
    ThreadingHTTPServer(("127.0.0.1", ORDER["port"]), Handler).serve_forever()


if __name__ == "__main__":
    main()
