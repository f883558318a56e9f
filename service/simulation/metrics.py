"""The simulated engine's `/metrics`: the plugin's series, and of SGLang's own those that a pool explains (pure)."""

from __future__ import annotations

from service.simulation.engine import SimulatedEngine
from service.simulation.launch import Launch


def exposition(engine: SimulatedEngine, launch: Launch) -> str:
    """All series, in Prometheus's text format."""
    pool, page_size = launch.server.pool, launch.server.pool.page_size
    used = (pool.pages - engine.free_pages) * page_size
    gauges = {
        "lastpage_pool_pages": pool.pages,
        "sglang:token_usage": used / pool.tokens,
        "sglang:num_running_reqs": engine.running,
        "sglang:num_queue_reqs": engine.waiting,
        "sglang:num_used_tokens": used,
        "sglang:max_total_num_tokens": pool.tokens,
    }
    lines = [f'# TYPE {name} gauge\n{name}{{model_name="{launch.name}"}} {value}' for name, value in gauges.items()]
    lines += [f"# TYPE {name} counter\n{name}_total {value}" for name, value in engine.counters().items()]
    return "\n".join(lines) + "\n"
