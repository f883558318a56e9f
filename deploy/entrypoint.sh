#!/bin/bash
# Makes the image's engine known, then becomes `lastpage` with the container's arguments.
set -eu

# CANN keeps the variables that its libraries need in scripts; they use variables that may be unset.
set +u
for script in /usr/local/Ascend/ascend-toolkit/set_env.sh /usr/local/Ascend/nnal/atb/set_env.sh; do
    # shellcheck disable=SC1090
    if [ -r "$script" ]; then . "$script"; fi
done
set -u

lastpage=/opt/lastpage/bin/lastpage
if [ -n "${ENGINE_PYTHON:-}" ]; then
    "$lastpage" engine add "$ENGINE_NAME" --python "$ENGINE_PYTHON" --no-check
fi
exec "$lastpage" "$@"
