#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all test suites. The last line says
# "N passed, N failed"; exit 0 only if nothing failed and something ran.
# usage: tools/test.sh [arguments of `meson test`, such as --suite fast]
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/steps.sh"

oracles=
if [ -d "$repo/../shared/oracles" ]; then # the full set, where it lies beside the project
  oracles=$(cd -- "$repo/../shared/oracles" && pwd)
fi

install_packages --tests
configure "-Doracles=$oracles"
compile

step "test"
code=0
rm -f "$build/meson-logs/testlog.json"
# Limits of time are there for what hangs; a busy machine is no failure.
meson test -C "$build" --no-rebuild --print-errorlogs --timeout-multiplier 4 "$@" || code=$?
step_done

step "count"
python3 -B "$repo/tools/count_tests.py" "$build/meson-logs/testlog.json" "$code"
