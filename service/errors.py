"""All errors of the service, drawn once.

LastpageError                     something that the person who asked can put right
├── HomeNotUsable                 `$LASTPAGE_HOME` names no folder
├── InvalidSpec                   a spec cannot work; every fault of it
├── InvalidCondition              a text is no threshold, or no condition of a waiver
├── NotOfThisForm                 a value in a condition is not written as its field's values are
├── EngineError                   something about an engine
│   ├── EngineNotFound            no engine of that name, or none at all
│   ├── EngineNameRefused         the name cannot be used, or is taken
│   ├── EngineInUse               another engine is built on this one
│   ├── InstallFailed             the environment could not be built
│   ├── EngineNotStarted          the operating system would not start the engine's command
│   ├── EngineNotReady            it does not serve: it died, took too long, or somebody else answers
│   │   └── EngineRefused         it serves, but what it records cannot be relied on
│   └── EngineSurvived            processes of it outlive SIGKILL
├── PortUnavailable               an engine cannot listen on the port
├── ModelNotUsable                a folder is no model that can be served
├── RunNotFound                   there is no run of that id
├── RunEnded                      what was asked for needs a run that has not ended
├── NotAccepting                  no run is accepted now
├── InvalidTransition             a run cannot take that step from where it is: a fault of the service itself
└── BodyTooLarge                  a request's body is longer than any spec

Apart stand those of the plugin, which runs inside SGLang and imports nothing of the service:

NotAFlightFile                    a file is no flight recording, or one of another format
UnexpectedAllocator               SGLang's allocator is not the one that the plugin can work on

And those inside the simulated engine, which speaks SGLang's HTTP and fails as SGLang does:

RequestRefused                    a request that SGLang answers with HTTP 400
SchedulerFailure                  an exception comes out of the scheduler, and the engine ends

Each is defined beside what raises it; those of engines that several modules raise, and the base, are here.
"""

from __future__ import annotations


class LastpageError(Exception):
    """Base of the service's errors. The message says what was wrong, with which value, and what to do."""


class EngineError(LastpageError):
    """Something about an engine that the person who asked can put right."""


class EngineNotFound(EngineError):
    """No such engine."""


class EngineNameRefused(EngineError):
    """The name cannot be used for this engine."""


class EngineInUse(EngineError):
    """The engine cannot be removed: another one is built on it."""


class InstallFailed(EngineError):
    """The engine's environment could not be built. The message ends with the log's tail."""
