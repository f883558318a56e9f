"""Works out what a release needs of its own when the rest is shared with an environment that is there already.

A release of SGLang pins hundreds of megabytes of Python, and ten gigabytes of CUDA and of kernels built for it. The
kernels decide nothing about the page allocator, and a CPU rehearsal never loads them, so the base's are kept whatever
the release pins; on Ascend the vendor image's must be kept. Everything else that differs is installed for the release.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from service.engine.install.pip import Candidate
from service.errors import InstallFailed

# Distributions that hold device code, or only serve some that do.
ACCELERATOR_PACKAGES = (
    "apache-tvm-ffi",
    "cuda-*",
    "flash-attn*",
    "flashinfer*",
    "humming-kernels",
    "kernels",
    "nccl*",
    "nvidia-*",
    "nvshmem*",
    "quack-kernels",
    "sgl-deep-*",
    "sgl-flash-*",
    "sgl-kernel*",
    "sglang-kernel*",
    "tilelang",
    "tokenspeed-*",
    "torch",
    "torch-*",
    "torchaudio",
    "torchcodec",
    "torchvision",
    "triton*",
)


@dataclass(frozen=True)
class LeftToBase:
    """A requirement that the base answers in another version than asked for, or not at all."""

    requirement: str
    version: str | None

    def __str__(self) -> str:
        return f"{self.requirement} (base: {self.version or 'none'})"


@dataclass(frozen=True)
class Sharing:
    """What to install for the release itself, and which of its requirements are left to the base all the same."""

    install: tuple[Candidate, ...]
    kept: tuple[LeftToBase, ...]


@dataclass
class _Plan:
    installed: Mapping[str, str]
    chosen: dict[str, Candidate] = field(default_factory=dict)
    required: dict[str, Requirement] = field(default_factory=dict)
    kept: dict[str, LeftToBase] = field(default_factory=dict)

    def require(self, requirement: Requirement) -> None:
        """Add a requirement to what has been asked of its distribution so far."""
        name = canonicalize_name(requirement.name)
        required = self.required.setdefault(name, Requirement(requirement.name))
        required.specifier &= requirement.specifier
        required.extras |= requirement.extras

    def lacks(self, requirement: Requirement) -> bool:
        """Whether a distribution has to be chosen for this requirement. Accelerator packages are noted as kept."""
        name = canonicalize_name(requirement.name)
        version = self.chosen[name].version if name in self.chosen else self.installed.get(name)
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            return False
        if is_accelerator_package(name):
            self.kept.setdefault(name, LeftToBase(f"{name}{requirement.specifier}", version))
            return False
        return True

    def add(self, candidates: Iterable[Candidate], markers: Mapping[str, str]) -> list[Requirement]:
        """Take distributions into the plan, and return what they require."""
        needed: list[Requirement] = []
        for candidate in candidates:
            name = canonicalize_name(candidate.name)
            self.chosen[name] = candidate
            needed += _requirements(candidate, self.required[name].extras, markers)
        return needed


def is_accelerator_package(name: str) -> bool:
    """Whether a distribution is one that is always left to the base."""
    return any(fnmatch.fnmatchcase(canonicalize_name(name), pattern) for pattern in ACCELERATOR_PACKAGES)


def share(
    release: Requirement,
    installed: Mapping[str, str],
    choose: Callable[[Sequence[Requirement]], list[Candidate]],
    markers: Callable[[], Mapping[str, str]],
) -> Sharing:
    """Walk a release's requirements, and theirs, down to what the base satisfies.

    Args:
        release: SGLang at the version wanted; always installed.
        installed: the base's distributions, canonical name to version.
        choose: finds a distribution for each requirement, by itself.
        markers: the environment that markers are judged in; asked after the first choice.

    Raises:
        InstallFailed: no distribution meets what is asked.
    """
    plan = _Plan(installed)
    wanted = {canonicalize_name(release.name)}
    plan.require(release)
    while wanted:
        # Everything asked of a distribution so far, so that a later choice still meets an earlier requirement.
        needed = plan.add(choose([plan.required[name] for name in sorted(wanted)]), markers())
        for requirement in needed:
            plan.require(requirement)
        wanted = {canonicalize_name(requirement.name) for requirement in needed if plan.lacks(requirement)}
    return Sharing(tuple(plan.chosen.values()), tuple(sorted(plan.kept.values(), key=str)))


def _requirements(candidate: Candidate, extras: Iterable[str], markers: Mapping[str, str]) -> list[Requirement]:
    """What a distribution requires in this environment."""
    requirements = []
    for text in candidate.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise InstallFailed(f"{candidate.name} {candidate.version} requires {text!r}: {error}") from error
        marker = requirement.marker
        if marker is None or any(marker.evaluate({**markers, "extra": extra}) for extra in ("", *extras)):
            requirements.append(requirement)
    return requirements
