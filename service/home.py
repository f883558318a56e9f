"""Where lastpage keeps what outlives a command: engines, their environments, models, runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from service.errors import LastpageError

HOME_VARIABLE = "LASTPAGE_HOME"


class HomeNotUsable(LastpageError):
    """`$LASTPAGE_HOME` names no folder; the message has its value."""


@dataclass(frozen=True)
class Home:
    """The folder that holds everything lastpage keeps."""

    root: Path

    @classmethod
    def default(cls) -> Home:
        """`$LASTPAGE_HOME`, or `lastpage` in the user's cache folder.

        Raises:
            HomeNotUsable: it begins with the home of a user that there is not.
        """
        chosen = os.environ.get(HOME_VARIABLE)
        try:
            root = Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("lastpage")
        except RuntimeError as error:
            raise HomeNotUsable(f"{HOME_VARIABLE} = {chosen!r}: {error} Give the path of a folder.") from error
        return cls(root.absolute())

    @property
    def engines(self) -> Path:
        """One JSON file a registered engine."""
        return self.root / "engines"

    @property
    def environments(self) -> Path:
        """Python environments that `lastpage engine install` built, one folder each."""
        return self.root / "environments"

    @property
    def checks(self) -> Path:
        """What engines said about themselves when they were last checked."""
        return self.root / "checks"

    @property
    def models(self) -> Path:
        """Tiny models written by lastpage."""
        return self.root / "models"

    @property
    def runs(self) -> Path:
        """One folder a run, when no other place was asked for."""
        return self.root / "runs"

    @property
    def device_lock(self) -> Path:
        """The lock of whichever process carries a run out."""
        return self.root / "device.lock"

    def ensure(self) -> Home:
        """Create the folders that are missing.

        Raises:
            OSError: the home cannot be written.
        """
        for folder in (self.engines, self.environments, self.checks, self.models, self.runs):
            folder.mkdir(parents=True, exist_ok=True)
        return self
