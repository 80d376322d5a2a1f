#!/bin/bash
# test.sh [PYTEST ARGUMENT...]: the Rust tests, then the Python tests; both run to their end, and both closing lines
# stand together at the foot. Fails when either failed.
set -uo pipefail

venv=${VENV:-.venv}
logs=$venv/logs
mkdir -p "$logs"

# The PyO3 crate is left out: an extension module has no libpython to link a test binary with.
cargo test --locked --workspace --exclude lastwords-python 2>&1 | tee "$logs/cargo-test.log"
cargo_status=$?

"$venv/bin/python" -m pytest "$@" 2>&1 | tee "$logs/pytest.log"
pytest_status=$?

echo
awk -v status="$cargo_status" '
    /^test result:/ { passed += $4; failed += $6; ignored += $8 }
    END {
        verdict = status == 0 ? "ok" : "FAILED (status " status ")"
        printf "cargo test: %s. %d passed; %d failed; %d ignored\n", verdict, passed, failed, ignored
    }' "$logs/cargo-test.log"
# Not simply the last line: what the tests leave behind may speak after it.
echo "pytest: $(grep -E ' in [0-9.]+s( \([0-9:]+\))? =*$' "$logs/pytest.log" | tail -n 1 | sed 's/^=* *//; s/ *=*$//')"

[ "$cargo_status" -eq 0 ] && [ "$pytest_status" -eq 0 ]
