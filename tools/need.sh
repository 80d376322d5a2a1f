#!/bin/sh
# need.sh TOOL...: silent when each tool (and room on the disk) is here and new enough; else one line that says how to get it, and exit 2.
set -u

missing() {
    echo "lastwords: $1" >&2
    exit 2
}

# at_least HAVE WANT: compares MAJOR.MINOR.
at_least() {
    have_major=${1%%.*}; have_rest=${1#*.}; have_minor=${have_rest%%.*}
    want_major=${2%%.*}; want_minor=${2#*.}
    [ "$have_major" -gt "$want_major" ] ||
        { [ "$have_major" -eq "$want_major" ] && [ "$have_minor" -ge "$want_minor" ]; }
}

need_python() {
    python=${PYTHON:-python3}
    get="install it (Debian: apt-get install python3 python3-venv) or name another one: make PYTHON=/path/to/python3"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) ||
        missing "needs Python 3.10 or newer, and '$python' does not run: $get"
    at_least "$version" 3.10 || missing "needs Python 3.10 or newer, and '$python' is $version: $get"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        missing "'$python' has no venv module (Debian: apt-get install python3-venv)"
}

need_cargo() {
    version=$(cargo --version 2>/dev/null) ||
        missing "needs cargo 1.88 or newer, and there is none: install Rust with rustup (https://rustup.rs)"
    version=${version#cargo }
    at_least "$version" 1.88 ||
        missing "needs cargo 1.88 or newer, and this is ${version%% *}: run 'rustup update stable'"
}

need_rustfmt() {
    cargo fmt --version >/dev/null 2>&1 || missing "needs rustfmt: run 'rustup component add rustfmt'"
}

need_clippy() {
    cargo clippy --version >/dev/null 2>&1 || missing "needs clippy: run 'rustup component add clippy'"
}

need_cc() {
    command -v "${CC:-cc}" >/dev/null 2>&1 ||
        missing "needs a C compiler, and there is no '${CC:-cc}' (Debian: apt-get install gcc libc6-dev)"
}

need_node() {
    command -v node >/dev/null 2>&1 || missing "needs Node (Debian: apt-get install nodejs npm)"
}

# A full disk shows first as a hundred failing tests that say nothing of it.
need_room() {
    free=$(df -Pk . | awk 'NR == 2 { print int($4 / 1048576) }')
    [ -z "$free" ] || [ "$free" -ge 12 ] ||
        missing "needs 12 GB of disk for torch, Spark and Ray, and $free GB are free here: make room, or run 'make test-fast'"
}

for tool in "$@"; do
    "need_$tool"
done
