#!/bin/bash
# cpython_tests.sh PYTHON FOLDER: puts CPython's own tests of process pools into FOLDER, where PYTHON has been installed
# without them. They come out of Debian's package of the same Python version, which is unpacked and not installed.
# It never fails: the test that needs them skips and says so.
set -u

python=$1 folder=$2 tests=test_concurrent_futures
[ -d "$folder/test" ] && exit 0
"$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('test.$tests') is None)" 2>/dev/null && exit 0

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
package=libpython$version-testsuite
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
give_up() {
    echo "lastwords: $1: CPython's own tests of process pools will skip" >&2
    exit 0
}

download() { (cd "$work" && apt-get download -q -o APT::Sandbox::User=root "$package") >"$work/log" 2>&1; }
command -v apt-get >/dev/null 2>&1 || give_up "no apt-get here to fetch $package with"
# The package lists of a fresh image are often empty or old: try without them, then once more with new ones.
download || { [ "$(id -u)" = 0 ] && apt-get update -q >/dev/null 2>&1 && download; } || give_up "no $package to be had"

mkdir -p "$work/test"
dpkg-deb --fsys-tarfile "$work"/*.deb |
    tar -x -C "$work/test" --strip-components=5 --wildcards "./usr/lib/python$version/test/$tests*" ||
    give_up "$package has no $tests"
# What else they need of `test`, such as test.support, is the interpreter's own.
echo '__path__ = __import__("pkgutil").extend_path(__path__, __name__)' >"$work/test/__init__.py"
mkdir -p "$folder" && mv "$work/test" "$folder/test"
