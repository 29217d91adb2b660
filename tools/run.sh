#!/usr/bin/env bash
# Installs what is missing, builds, and lets the embedded model tell a story with an expert cache
# that holds a quarter of its experts, so that the rest streams from disk. Text goes to stdout,
# the steps and the report to stderr. A second run only builds what changed.
# usage: tools/run.sh [more flags of `millrace run`; a later flag wins]
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/steps.sh"

install_packages
configure
compile tools/millrace

step "run"
"$build/tools/millrace" run -p "Once upon a time" -n 160 --cache 25% --temp 0.7 \
  --repeat-penalty 1.1 --seed 7 "$@"
step_done
