"""Claims about the rehearsal platform and the entry points, with stand-ins for SGLang."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from service.plugin import entry
from service.plugin.settings import Allocator, Profile, Settings

from .stand_ins import put

KERNELS = "sgl_kernel_npu.mem_cache.allocator"


class InstalledAllocator:
    """In place of SGLang's NPU allocator."""

    def alloc_decode(self) -> None: ...
    def alloc_extend(self) -> None: ...


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The platform module, on stand-ins of the classes that it derives from."""
    put(monkeypatch, "sglang.srt.platforms.cpu", CpuDeviceMixin=type("CpuDeviceMixin", (), {}))
    put(monkeypatch, "sglang.srt.platforms.device_mixin", PlatformEnum=types.SimpleNamespace(OOT="oot"))
    put(monkeypatch, "sglang.srt.platforms.interface", SRTPlatform=type("SRTPlatform", (), {}))
    put(
        monkeypatch,
        "sglang.srt.hardware_backend.npu.allocator_npu",
        NPUPagedTokenToKVPoolAllocator=InstalledAllocator,
    )
    put(monkeypatch, "sglang.srt.managers.schedule_batch", ScheduleBatch=types.SimpleNamespace(retract_decode=print))
    put(monkeypatch, "sglang.srt.mem_cache.registry", create_tree_cache=print)
    put(
        monkeypatch,
        "sglang.srt.mem_cache.base_prefix_cache",
        BasePrefixCache=types.SimpleNamespace(update_eviction_metrics=print),
    )
    put(monkeypatch, "sglang.srt.mem_cache.memory_pool", MHATokenToKVPool="the pool")
    for name in ("sgl_kernel_npu", "sgl_kernel_npu.mem_cache", KERNELS):
        # Recorded, so that what the platform puts there is taken away after the test.
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "service.plugin.platform", raising=False)
    module = importlib.import_module("service.plugin.platform")
    monkeypatch.setitem(sys.modules, "service.plugin.platform", module)
    return module


def test_pages_are_handed_out_by_the_npu_allocator_or_by_what_took_its_place(
    platform: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = platform.RehearsalPlatform()
    assert rehearsal.get_paged_allocator_cls() is InstalledAllocator
    variant = type("Variant", (InstalledAllocator,), {})
    allocators = sys.modules["sglang.srt.hardware_backend.npu.allocator_npu"]
    monkeypatch.setattr(allocators, "NPUPagedTokenToKVPoolAllocator", variant)
    assert rehearsal.get_paged_allocator_cls() is variant


def test_it_is_a_plain_cpu(platform: types.ModuleType) -> None:
    rehearsal = platform.RehearsalPlatform()
    assert (rehearsal.device_type, rehearsal.get_default_attention_backend()) == ("cpu", "torch_native")
    assert (rehearsal.get_dispatch_key_name(), rehearsal.is_pin_memory_available()) == ("native", False)
    assert rehearsal.get_mha_kv_pool_cls() == "the pool"


def test_the_extend_kernel_is_stood_in_for_by_sglangs_own_computation(
    platform: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []
    put(monkeypatch, "sglang.srt.mem_cache.allocator", alloc_extend_naive=lambda *given: calls.append(given))
    platform.stand_in_for_extend_kernel()
    kernel = importlib.import_module(KERNELS).alloc_extend_kernel
    out = types.SimpleNamespace(device="cpu")
    # As alloc_extend launches it: one program for each row.
    kernel[(3,)]("prefix_lens", "seq_lens", "last_loc", "free_pages", out, 4, 128, 512)
    assert calls == [("prefix_lens", "seq_lens", "last_loc", "free_pages", out, 128, "cpu")]


def test_a_real_kernel_is_left_alone(platform: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    real = put(monkeypatch, KERNELS, alloc_extend_kernel="the real one")
    platform.stand_in_for_extend_kernel()
    assert sys.modules[KERNELS] is real


def test_an_installed_package_that_is_not_imported_yet_is_left_alone(
    platform: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    platform.stand_in_for_extend_kernel()
    assert KERNELS not in sys.modules


@pytest.mark.parametrize("profile", [None, "ascend", "rehearsal"])
def test_the_platform_takes_part_in_a_rehearsal_only(profile: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LASTPAGE_PROFILE", raising=False)
    if profile is not None:
        monkeypatch.setenv("LASTPAGE_PROFILE", profile)
    expected = "service.plugin.platform.RehearsalPlatform" if profile == "rehearsal" else None
    assert entry.activate() == expected


class Hooks:
    """In place of SGLang's hook registry."""

    def __init__(self) -> None:
        self.registered: list[tuple[str, Any, str]] = []

    def register(self, target: str, hook: Any, kind: str) -> None:
        self.registered.append((target, hook, kind))


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hooks:
    """The hooks that `register` puts in place. The allocator's clamp is not asked for: that needs torch."""
    made = Hooks()
    kinds = types.SimpleNamespace(AROUND="around", REPLACE="replace")
    put(monkeypatch, "sglang.srt.plugins.hook_registry", HookRegistry=made, HookType=kinds)
    put(
        monkeypatch,
        "sglang.srt.hardware_backend.npu.allocator_npu",
        NPUPagedTokenToKVPoolAllocator=InstalledAllocator,
    )
    put(monkeypatch, "sglang.srt.managers.schedule_batch", ScheduleBatch=types.SimpleNamespace(retract_decode=print))
    put(monkeypatch, "sglang.srt.mem_cache.registry", create_tree_cache=print)
    put(
        monkeypatch,
        "sglang.srt.mem_cache.base_prefix_cache",
        BasePrefixCache=types.SimpleNamespace(update_eviction_metrics=print),
    )
    put(
        monkeypatch,
        "service.plugin.variants",
        load_installed_class=lambda: InstalledAllocator,
        variant_of=lambda cls, allocator: cls if allocator is Allocator.INSTALLED else type("Variant", (cls,), {}),
    )
    tell(monkeypatch, Settings(str(tmp_path / "flight.bin"), Allocator.INSTALLED, Profile.REHEARSAL))
    return made


def tell(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)


def test_the_installed_allocator_is_only_watched(hooks: Hooks) -> None:
    entry.register()
    assert [(target.rpartition(".")[2], kind) for target, _, kind in hooks.registered] == [
        ("alloc_decode", "around"),
        ("alloc_extend", "around"),
        ("retract_decode", "around"),
        ("create_tree_cache", "around"),
        ("update_eviction_metrics", "around"),
    ]


def test_a_variant_takes_the_allocators_place_before_the_probe_is_hooked(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, Settings("flight.bin", Allocator.PATCHED, Profile.REHEARSAL))
    entry.register()
    target, variant, kind = hooks.registered[0]
    assert target == "sglang.srt.hardware_backend.npu.allocator_npu.InstalledAllocator"
    assert (issubclass(variant, InstalledAllocator), kind) == (True, "replace")
    assert len(hooks.registered) == 6


def test_a_release_without_something_that_is_watched_is_not_started(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang's registry would only log it, and the recording would lack what the hook tells."""
    monkeypatch.delattr("sglang.srt.managers.schedule_batch.ScheduleBatch")
    with pytest.raises(SystemExit, match=r"so it is not started\. AttributeError: .* 'ScheduleBatch'"):
        entry.register()


def test_an_engine_that_cannot_be_instrumented_is_not_started(hooks: Hooks, monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang logs an exception of a plugin and goes on; SystemExit it lets pass."""
    monkeypatch.setenv("LASTPAGE_ALLOCATOR", "clamped")
    with pytest.raises(SystemExit, match=r"cannot be instrumented, so it is not started\. ValueError: 'clamped'"):
        entry.register()
    monkeypatch.delenv("LASTPAGE_FLIGHT")
    with pytest.raises(SystemExit, match=r"KeyError: 'LASTPAGE_FLIGHT'"):
        entry.register()
