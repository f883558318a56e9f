"""Prometheus's own tools, which the tests of its configuration need."""

from __future__ import annotations

import shutil

import pytest


def tool(name: str) -> str:
    """The path of `prometheus` or `promtool`. Without it nothing can be shown: that is a failure, not a skip."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is missing; `make prometheus` installs Debian's package", pytrace=False)
    return found
