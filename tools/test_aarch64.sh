#!/usr/bin/env bash
# Builds the program and the kernel tests for 64-bit ARM and runs them by qemu's user mode: NEON's
# kernels against the reference, and the embedded model's story, whose state hash must be the one
# of the program given (built for this machine). Exit 77, with a reason, where that cannot be done.
# usage: tools/test_aarch64.sh BUILD_FOLDER PROGRAM
set -euo pipefail

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$1/aarch64
program=$2
libraries=$repo/build/aarch64-libraries # tools/aarch64_libraries.sh puts them there

skip() {
  printf 'skipped: %s (apt: g++-aarch64-linux-gnu qemu-user; tools/aarch64_libraries.sh)\n' "$1"
  exit 77
}
[ "$(uname -m)" != aarch64 ] || { echo "skipped: the tests of this machine are those"; exit 77; }
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$tool" >/dev/null || skip "no $tool here"
done
[ -f "$libraries/paths.ini" ] || skip "no arm64 libraries in $libraries"

emulate() { # [qemu's flags] program and its arguments
  qemu-aarch64 -L /usr/aarch64-linux-gnu \
    -E LD_LIBRARY_PATH="$libraries/usr/lib/aarch64-linux-gnu:$libraries/lib/aarch64-linux-gnu" "$@"
}
failed() {
  printf 'failed: %s\n' "$*"
  exit 1
}

if [ ! -f "$build/build.ninja" ]; then
  meson setup "$build" "$repo" --cross-file "$repo/tools/aarch64.ini" \
    --cross-file "$libraries/paths.ini"
fi
ninja -C "$build" tools/millrace tests/kernels/kernels_tests \
  model/embedded/little-tales-moe-42M-mxfp4.gguf

emulate "$build/tests/kernels/kernels_tests"

# The state hash of the main job (tools/run.sh's) with further flags.
story=(run -p "Once upon a time" -n 160 --cache 25% --temp 0.7 --repeat-penalty 1.1 --seed 7)
state_hash() { python3 -c 'import json, sys; print(json.load(sys.stdin)["state_hash"])'; }
expected=$("$program" "${story[@]}" --json 2>/dev/null | state_hash)
for isa in neon neon-dotprod; do
  found=$(emulate "$build/tools/millrace" "${story[@]}" --isa "$isa" --json | state_hash)
  printf '%s: state hash %s, here %s\n' "$isa" "$found" "$expected"
  [ "$found" = "$expected" ] || failed "another state hash with --isa $isa"
done

code=0
said=$(emulate -cpu cortex-a53 "$build/tools/millrace" "${story[@]}" --isa neon-dotprod 2>&1) ||
  code=$?
[ "$code" = 1 ] || failed "a CPU without dot products: exit code $code instead of 1: $said"
case $said in
  *"this CPU lacks DotProd"*) ;;
  *) failed "a CPU without dot products is not refused by that reason: $said" ;;
esac
echo "passed"
