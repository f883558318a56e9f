from __future__ import annotations

from loadgen.sglang.pages import Pool
from loadgen.sglang.server import ServerConfiguration
from service.execution.server_configuration import server_configuration

POOL = Pool(128, 32)


def test_a_server_has_overlap_and_a_prefix_cache_unless_its_arguments_say_otherwise() -> None:
    assert server_configuration(POOL, ["--tp", "2"]) == ServerConfiguration(POOL, overlap=True, prefix_cache=True)
    off = ["--disable-overlap-schedule", "--disable-radix-cache"]
    assert server_configuration(POOL, off) == ServerConfiguration(POOL, overlap=False, prefix_cache=False)


def test_of_the_arguments_for_the_largest_batch_the_last_counts() -> None:
    arguments = ["--max-running-requests", "8", "--max-running-requests=16"]
    assert server_configuration(POOL, arguments).max_running_requests == 16
    assert server_configuration(POOL, ["--max-running-requests"]).max_running_requests is None
