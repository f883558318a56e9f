"""Entry points that SGLang calls: see "SGLang Plugin System" in its documentation.

SGLang logs an exception from a plugin and goes on without it. A server that runs half-instrumented would be
worse than none, so whatever goes wrong here ends the process: SystemExit passes SGLang's handler.
"""

from __future__ import annotations

from typing import NoReturn

from .settings import PROFILE_VARIABLE, Profile, Settings

PLATFORM_NAME = "lastpage_rehearsal"
PLUGIN_NAME = "lastpage"


def activate() -> str | None:
    """The rehearsal platform's class, by dotted name; None when this launch is not a rehearsal."""
    import os

    if os.environ.get(PROFILE_VARIABLE) != Profile.REHEARSAL.value:
        return None
    return f"{__package__}.platform.RehearsalPlatform"


def register() -> None:
    """Put the allocator variant in place and hook the probe around it."""
    try:
        settings = Settings.from_environment()
        _install(settings)
    except Exception as error:
        _refuse(f"{type(error).__name__}: {error}")


def _install(settings: Settings) -> None:
    import pkgutil

    from sglang.srt.hardware_backend.npu import allocator_npu
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from .probe import Probe
    from .variants import load_installed_class, variant_of

    installed = load_installed_class()
    variant = variant_of(installed, settings.allocator)
    if variant is not installed:
        HookRegistry.register(
            f"{allocator_npu.__name__}.{installed.__name__}",
            variant,
            HookType.REPLACE,
        )
    for target, hook in Probe(settings).targets().items():
        # The registry only logs that a release has no such target, and the recording would lack what it tells.
        pkgutil.resolve_name(target)
        HookRegistry.register(target, hook, HookType.AROUND)


def _refuse(reason: str) -> NoReturn:
    raise SystemExit(f"lastpage: this engine cannot be instrumented, so it is not started. {reason}")
