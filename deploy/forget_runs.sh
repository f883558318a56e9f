#!/bin/bash
# Deletes the folders of runs that ended more than so many days ago. Usage: forget_runs.sh DAYS
# A run has its report.json from its end on: one that waits or runs is never touched, nor what `lastpage shrink` wrote.
set -euo pipefail

days=${1:?usage: forget_runs.sh DAYS}
cd "${LASTPAGE_HOME:?}/runs"
find . -mindepth 2 -maxdepth 2 -name report.json -mmin "+$((days * 24 * 60))" -printf '%h\0' | xargs -0 --no-run-if-empty rm --recursive --
