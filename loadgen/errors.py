"""All errors of the load generator, drawn once.

LoadError                         what a scenario, a model or a client cannot go on with
├── HttpError                     a request got no answer that can be used
│   ├── ConnectionLost            the server closed the connection, or there was none
│   └── Silence                   nothing came for too long
├── NotATrace                     a file is no trace of requests
├── NotRequests                   a text is no list of requests
├── NotServable                   SGLang would not take this request, or never admit it
├── OutOfPages                    the model of the scheduler has no page where SGLang had counted on one
└── OutOfStep                     the engine is not where the carousel had foreseen it

Each is defined beside what raises it.
"""

from __future__ import annotations


class LoadError(Exception):
    """Base of the load generator's errors."""
