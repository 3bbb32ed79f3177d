#!/usr/bin/env bash
# Installs Stockade: the program of a release, or compiled from the registry, or from the source that this script belongs to.
#
#   ROOT      the directory; the program is in its `bin`
#   VERSION   of a release; empty: that of this source
#   FEATURES  of a build, with commas; the program of a release has all
#   RELEASES  URL of the releases, such as https://github.com/OWNER/stockade/releases/download; empty: compile
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)

# False if no program of this release runs on this machine. An action that is pinned to a branch or a commit is compiled: it may be newer.
download() {
    local version archive scratch
    [[ $(uname -sm) == "Linux x86_64" ]] || return 1
    [[ -n ${VERSION:-} || ${GITHUB_ACTION_REF:-v} == v* ]] || return 1
    version=${VERSION:-$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' "$here/Cargo.toml")}
    archive=stockade-$version-x86_64-linux
    scratch=$(mktemp -d)
    for file in "$archive.tar.gz" SHA256SUMS; do
        curl --silent --show-error --fail --location --retry 3 --max-time 120 \
            --output "$scratch/$file" "$RELEASES/v$version/$file" || return 1
    done
    # An archive that is not the released one is never run.
    if ! (cd "$scratch" && grep --fixed-strings " $archive.tar.gz" SHA256SUMS | sha256sum --check --strict --quiet -); then
        echo "::error::$RELEASES/v$version/$archive.tar.gz has another checksum than in SHA256SUMS" >&2
        exit 1
    fi
    tar -xzf "$scratch/$archive.tar.gz" -C "$scratch" &&
        "$scratch/$archive/stockade" --version >/dev/null &&
        install -D "$scratch/$archive/stockade" "$ROOT/bin/stockade" &&
        rm -r "$scratch"
}

: "${ROOT:?}"
if [[ -n ${RELEASES:-} ]]; then
    if download; then
        exit
    fi
    echo "no program of this release runs on this machine: it is compiled" >&2
fi
arguments=(install stockade --locked --root "$ROOT" --no-default-features --features "${FEATURES:-}")
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
