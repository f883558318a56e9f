#!/bin/bash
# Makes the image's engine known, then becomes `lastpage` with the container's arguments.
set -eu

# Not asked for its version here: that takes half a minute, and is done when a run first needs it. A volume may hold an
# engine of that name that is not to be replaced: `engine add` says so, and what is there can be served all the same.
/opt/lastpage/bin/lastpage engine add "$ENGINE_NAME" --python "${ENGINE_PYTHON:-$(command -v python3)}" --no-check || true
exec /usr/local/bin/lastpage "$@"
