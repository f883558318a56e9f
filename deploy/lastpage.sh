#!/bin/bash
# The command `lastpage` of the image, for its own process and for `docker exec`, which knows nothing of an entrypoint.

# CANN keeps the variables that its libraries need in scripts. They use variables that may be unset and commands that may
# fail, so neither ends this one; and as they read arguments, they are called in a function, which has none.
read_cann() {
    local script
    for script in /usr/local/Ascend/ascend-toolkit/set_env.sh /usr/local/Ascend/nnal/atb/set_env.sh; do
        # shellcheck disable=SC1090
        if [ -r "$script" ]; then . "$script"; fi
    done
}
read_cann
exec /opt/lastpage/bin/lastpage "$@"
