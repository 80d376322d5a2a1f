#!/bin/sh
# system.sh PACKAGE...: installs the Debian packages that are missing, where that is possible.
# It never fails: tests that need a missing program skip and say so.
set -u

missing=""
for package in "$@"; do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)
    [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

by_hand="tests that need them will skip; to run them too: apt-get install$missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "lastwords: no apt-get here to install$missing: $by_hand" >&2
elif [ "$(id -u)" != 0 ]; then
    echo "lastwords: not root, so not installing$missing: $by_hand" >&2
else
    echo "installing Debian packages:$missing"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # The package lists of a fresh image are often empty or old: try without them, then once more with new ones.
    # shellcheck disable=SC2086
    apt-get install -qy --no-install-recommends $missing >"$log" 2>&1 ||
        { apt-get update -q >>"$log" 2>&1 && apt-get install -qy --no-install-recommends $missing >>"$log" 2>&1; } ||
        { tail -n 3 "$log" >&2; echo "lastwords: apt-get could not install$missing: $by_hand" >&2; }
    rm -f "$log"
fi
exit 0
