"""The plan of what a release needs of its own, against a small index that stands in for pip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from service.engine.install.pip import Candidate
from service.engine.install.sharing import Sharing, is_accelerator_package, share
from service.errors import InstallFailed

Index = Mapping[str, Mapping[str, Sequence[str]]]  # name, version, what that requires

RELEASES: Index = {
    "sglang": {
        "0.5.18": [
            "transformers==5.12.1",
            "torch==2.13.0",
            "tokenspeed_mla==0.1.8",
            "openai==2.6.1",
            "numpy",
            'tomli; python_version < "3.11"',
            'addict==2.4.0; extra == "diffusion"',
        ]
    },
    "transformers": {"5.12.1": ["tokenizers<=0.23.0,>=0.22.0", "numpy>=1.17"], "5.19.0": []},
    "tokenizers": {"0.22.2": [], "0.23.2": []},
    "openai": {"2.6.1": ["new_dependency"], "2.8.0": []},
    "new-dependency": {"1.0": []},
    "addict": {"2.4.0": []},
    "tomli": {"2.0": []},
}
BASE = {
    "sglang": "0.5.23",
    "transformers": "5.19.0",
    "tokenizers": "0.23.2",
    "torch": "2.14.1",
    "openai": "2.8.0",
    "numpy": "2.3.5",
}
MARKERS = {"python_version": "3.11", "sys_platform": "linux"}


def plan(index: Index = RELEASES, base: Mapping[str, str] = BASE, release: str = "sglang==0.5.18") -> Sharing:
    def choose(requirements: Sequence[Requirement]) -> list[Candidate]:
        return [newest(requirement) for requirement in requirements]

    def newest(requirement: Requirement) -> Candidate:
        name = canonicalize_name(requirement.name)
        fitting = [version for version in index.get(name, {}) if requirement.specifier.contains(version)]
        if not fitting:
            raise InstallFailed(f"no distribution for {requirement}")
        version = max(fitting, key=Version)
        return Candidate(name, version, tuple(index[name][version]))

    return share(Requirement(release), base, choose, lambda: MARKERS)


def versions(sharing: Sharing) -> dict[str, str]:
    return {candidate.name: candidate.version for candidate in sharing.install}


def test_only_what_the_release_pins_differently_is_installed() -> None:
    assert versions(plan()) == {
        "sglang": "0.5.18",
        "transformers": "5.12.1",
        "tokenizers": "0.22.2",  # asked for by transformers, not by sglang
        "openai": "2.6.1",
        "new-dependency": "1.0",  # the base has none
    }


def test_accelerator_packages_are_left_to_the_base_and_told() -> None:
    assert [str(kept) for kept in plan().kept] == [
        "tokenspeed-mla==0.1.8 (base: none)",
        "torch==2.13.0 (base: 2.14.1)",
    ]


def test_a_release_that_pins_what_the_base_has_is_installed_alone() -> None:
    index = {"sglang": {"0.5.24": ["torch==2.14.1", "numpy"]}}
    assert plan(index, release="sglang==0.5.24") == Sharing(
        (Candidate("sglang", "0.5.24", ("torch==2.14.1", "numpy")),), ()
    )


def test_extras_bring_their_requirements() -> None:
    index = {"sglang": {"1": ["a[fast]"]}, "a": {"1": ['b; extra == "fast"', 'c; extra == "slow"']}, "b": {"1": []}}
    assert set(versions(plan(index, {}, "sglang==1"))) == {"sglang", "a", "b"}


def test_a_later_requirement_is_met_together_with_the_earlier_ones() -> None:
    index = {"sglang": {"1": ["x>=2", "y"]}, "y": {"1": ["x<3"]}, "x": {"1": [], "2.5": [], "3": []}}
    assert versions(plan(index, {"x": "3"}, "sglang==1")) == {"sglang": "1", "y": "1", "x": "2.5"}


def test_requirements_that_cannot_be_met_together_fail_naming_them() -> None:
    index = {"sglang": {"1": ["x>=2", "y"]}, "y": {"1": ["x<2"]}, "x": {"1": [], "2": []}}
    with pytest.raises(InstallFailed, match="x<2,>=2"):
        plan(index, {}, "sglang==1")


@pytest.mark.parametrize(
    "name", ["torch", "torch_npu", "nvidia-cublas", "sgl-kernel-npu", "flashinfer_python", "triton"]
)
def test_device_code_is_recognised_by_name(name: str) -> None:
    assert is_accelerator_package(name)


@pytest.mark.parametrize("name", ["transformers", "xgrammar", "tokenizers", "torchmetrics-lite", "sglang", "openai"])
def test_plain_python_is_not_taken_for_device_code(name: str) -> None:
    assert not is_accelerator_package(name)


NAMES = ["a", "b", "c", "d"]
SPECIFIERS = st.sampled_from(["", "==1", "==2", ">=2", "<=2", "<3"])
REQUIRES = st.lists(st.builds(str.__add__, st.sampled_from(NAMES), SPECIFIERS), max_size=3)
INDEXES = st.fixed_dictionaries({name: st.fixed_dictionaries(dict.fromkeys("123", REQUIRES)) for name in NAMES})


@given(INDEXES, st.dictionaries(st.sampled_from(NAMES), st.sampled_from("123")), REQUIRES)
def test_every_requirement_of_what_is_installed_is_met(
    index: Index, base: Mapping[str, str], requires: list[str]
) -> None:
    try:
        sharing = plan({**index, "sglang": {"1": requires}}, base, "sglang==1")
    except InstallFailed:
        return
    there = {**base, **versions(sharing)}
    for candidate in sharing.install:
        for requirement in map(Requirement, candidate.requires):
            assert requirement.specifier.contains(there[requirement.name])
