"""Claims about what the controller tells the plugin: it arrives as it was said, or is refused by name."""

from __future__ import annotations

import itertools

import pytest

from service.plugin.settings import Allocator, Profile, Settings

ALL = [
    Settings("/runs/1/flight.bin", allocator, profile) for allocator, profile in itertools.product(Allocator, Profile)
]


@pytest.mark.parametrize("settings", ALL, ids=str)
def test_settings_survive_the_environment(settings: Settings) -> None:
    assert Settings.from_environment(settings.environment()) == settings


@pytest.mark.parametrize("missing", ["LASTPAGE_FLIGHT", "LASTPAGE_ALLOCATOR", "LASTPAGE_PROFILE"])
def test_a_missing_variable_is_named(missing: str) -> None:
    environment = ALL[0].environment()
    del environment[missing]
    with pytest.raises(KeyError, match=missing):
        Settings.from_environment(environment)


@pytest.mark.parametrize("name", ["LASTPAGE_ALLOCATOR", "LASTPAGE_PROFILE"])
def test_a_value_that_is_not_allowed_is_named(name: str) -> None:
    with pytest.raises(ValueError, match="'clamped' is not a valid"):
        Settings.from_environment({**ALL[0].environment(), name: "clamped"})
