"""Turns waves that were sent into waves of a spec, which make the same load again (pure).

Three waves, of which the server was idle before the second:

    sent                                    in the spec
    1 request, at decode step 0             left out: it had ended before the server was idle
    3 requests, at decode step 60, idle     the first wave, for an idle server
    1 request, at decode step 75            the second wave, 15 decode steps later

Where the server keeps a prefix cache, what it has cached matters as well. Then no wave is left out, and the second is
marked as one that waits until the server is idle.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...requests.notation import write_requests
from ...requests.wave import SentWave
from .scenario import WaveSpec

# Waves come this close to each other without any pause that was meant: a driver looks every few milliseconds.
_LONG_PAUSE_SECONDS = 0.05


def wave_specs_of(sent_waves: Sequence[SentWave], *, idle_is_enough: bool = True) -> tuple[WaveSpec, ...]:
    """The waves with which the scenario `waves` makes the load of `sent_waves` again, up to its end.

    Args:
        sent_waves: the last waves that were sent, in order.
        idle_is_enough: whether an idle server has nothing left of what was sent before, as without a prefix cache.
            Then the waves begin where it was last idle.

    Returns:
        waves, of which the first begins on an idle server. Where `sent_waves` begins in the middle of the load, the
        requests that were open then come first, all at once.
    """
    if not sent_waves:
        return ()
    idle = [place for place, wave in enumerate(sent_waves) if not wave.open_requests]
    # A request whose client has just hung up is no longer open here, and the server may still work on it.
    calm = [place for place in idle if not (place and any(r.hangs_up for r in sent_waves[place - 1].wave.requests))]
    begins = calm or idle
    if not begins:
        together = _open_at_first(sent_waves)
        return _specs_of([sent_waves[:together], *([wave] for wave in sent_waves[together:])])
    return _specs_of([[wave] for wave in sent_waves[begins[-1] if idle_is_enough else idle[0] :]])


def _open_at_first(sent_waves: Sequence[SentWave]) -> int:
    """How many of these waves together have as many requests as were open when the first was sent."""
    requests = 0
    for place, wave in enumerate(sent_waves):
        requests += len(wave.wave.requests)
        if requests >= sent_waves[0].open_requests:
            return place + 1
    return len(sent_waves)


def _specs_of(groups: Sequence[Sequence[SentWave]]) -> tuple[WaveSpec, ...]:
    waves: list[WaveSpec] = []
    number, began, previous = 1, groups[0][-1], None
    for group in groups:
        last = group[-1]
        idle = not last.open_requests and previous is not None
        if idle:
            began = last
        requests = [request for wave in group for request in wave.numbered]
        # The waves are told apart by decode steps. Where no step was seen between two of them, a time does it.
        stepped = previous is None or idle or previous.decode_steps != last.decode_steps
        pause = 0.0 if stepped or previous is None else round(last.elapsed - previous.elapsed, 3)
        waves.append(
            WaveSpec(
                idle=idle,
                after_steps=0 if idle else last.decode_steps - began.decode_steps,
                after_seconds=pause if pause >= _LONG_PAUSE_SECONDS else 0.0,
                streamed=last.wave.streamed,
                requests=write_requests(requests, number),
            )
        )
        number = requests[-1][0] + 1
        previous = last
    return tuple(waves)
