#!/usr/bin/env bash
# Installs Stockade: a version of the registry, or the source that this script belongs to.
#
#   ROOT      the directory; the program is in its `bin`
#   VERSION   of the registry; empty: this source
#   FEATURES  of the build, with commas
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)
arguments=(install stockade --locked --root "${ROOT:?}" --no-default-features --features "${FEATURES:-}")
if [[ -n ${VERSION:-} ]]; then
    arguments+=(--version "$VERSION")
else
    arguments=(install --path "$here/crates/stockade" "${arguments[@]:2}")
fi
if command -v rustup >/dev/null; then
    rustup toolchain install stable --profile minimal --no-self-update
    exec rustup run stable cargo "${arguments[@]}"
fi
exec cargo "${arguments[@]}"
