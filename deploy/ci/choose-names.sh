#!/usr/bin/env bash
# The names that the steps of action.yml share, as outputs: without characters that keys of caches and names of artifacts
# may not have.
#
#   EXPERIMENT, KEY, VERSION, FEATURES  inputs of the action
#   GITHUB_ACTION_PATH, GITHUB_OUTPUT, RUNNER_TEMP, RUNNER_OS, RUNNER_ARCH  as in a workflow
set -euo pipefail

# A name of at most 80 characters, and a part of its digest if it had others.
safe() {
    local name
    name=$(tr -c 'A-Za-z0-9._-' '-' <<<"$1" | head -n 1 | head -c 80)
    name=${name%-}
    if [[ $name != "$1" ]]; then
        name=$name-$(sha256sum <<<"$1" | head -c 8)
    fi
    printf '%s' "$name"
}

source_digest() {
    (
        cd -- "$GITHUB_ACTION_PATH"
        find Cargo.toml Cargo.lock crates -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | head -c 16
    )
}

name=$(safe "${KEY:-$EXPERIMENT}")
build=${VERSION:-$(source_digest)}
{
    echo "name=$name"
    echo "record=stockade-record-$name"
    echo "summary=stockade-summary-$name.md"
    echo "junit=stockade-junit-$name.xml"
    echo "artifact=stockade-record-$name"
    echo "record-key=stockade-record-$RUNNER_OS-$RUNNER_ARCH-$name"
    echo "program-key=stockade-$RUNNER_OS-$RUNNER_ARCH-$(safe "$build ${FEATURES:-}")"
    echo "root=$RUNNER_TEMP/stockade"
} >>"$GITHUB_OUTPUT"
