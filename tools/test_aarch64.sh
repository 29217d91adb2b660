#!/usr/bin/env bash
# Builds the program and the kernel tests for 64-bit ARM and runs them by qemu's user mode: NEON's
# kernels against the reference, and a story of the embedded model, whose state hash must be the one
# of the program given (built for this machine). Exit 77, with a reason, where that cannot be done.
# usage: tools/test_aarch64.sh BUILD_FOLDER PROGRAM
set -euo pipefail

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$1/aarch64
program=$2
libraries=$repo/build/aarch64-libraries # tools/aarch64_libraries.sh puts them there

skip() {
  printf 'skipped: %s (g++-aarch64-linux-gnu, qemu-user, aarch64_libraries.sh)\n' "$1"
  exit 77
}
failed() {
  printf 'failed: %s\n' "$*"
  exit 1
}
[ "$(uname -m)" != aarch64 ] || { echo "skipped: the tests of this machine are those"; exit 77; }
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v "$tool" >/dev/null || skip "no $tool here"
done
[ -f "$libraries/packages.txt" ] || skip "no arm64 libraries in $libraries"

# Makes the build folder, anew if its cross file would be another one now.
configure() {
  local cross=$build.ini launcher="'$repo/tools/aarch64_group.sh'"
  if command -v ccache >/dev/null; then launcher+=", 'ccache'"; fi
  {
    printf "[constants]\nlibraries = '%s'\nlauncher = [%s]\n" "$libraries" "$launcher"
    cat "$repo/tools/aarch64.ini"
  } >"$cross.new"
  if [ ! -f "$build/build.ninja" ] || ! cmp -s "$cross.new" "$cross"; then
    rm -rf "$build"
    mv "$cross.new" "$cross"
    meson setup "$build" "$repo" --cross-file "$cross"
  fi
  rm -f "$cross.new"
}
configure
ninja -C "$build" tools/millrace tests/kernels/kernels_tests \
  model/embedded/little-tales-moe-42M-mxfp4.gguf

emulate() { # CPU, program and its arguments
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E XDG_CACHE_HOME=/dev/null \
    -E LD_LIBRARY_PATH="$libraries/usr/lib/aarch64-linux-gnu:$libraries/lib/aarch64-linux-gnu" \
    -cpu "$@"
}

# All but what has no NEON form: panels and AMX's tiles, half of the time.
emulate max "$build/tests/kernels/kernels_tests" "~panels:*" "~tiles:*"

# The prompt is long enough for panels here, which NEON has not.
story=(run -n 64 --cache 25% --temp 0.7 --repeat-penalty 1.1 --seed 7 -p
  "Once upon a time a miller had three sons, his mill, a donkey and a cat; the sons had to grind")
# Instruction set and state hash, from a run's JSON.
result_of() {
  python3 -c 'import json, sys; said = json.load(sys.stdin); print(said["isa"], said["state_hash"])'
}
here=$(XDG_CACHE_HOME=/dev/null "$program" "${story[@]}" --json | result_of)
expect() { # instruction set, CPU, further flags of the run
  local isa=$1 found
  found=$(emulate "$2" "$build/tools/millrace" "${story[@]}" --json "${@:3}" | result_of)
  printf 'state hash of %s on %s, here of %s\n' "$found" "$2" "$here"
  [ "$found" = "$isa ${here#* }" ] || failed "$isa was to give that state hash"
}
expect neon cortex-a53 # which traps what only later CPUs have
expect neon-dotprod max

code=0
said=$(emulate cortex-a53 "$build/tools/millrace" "${story[@]}" --isa neon-dotprod 2>&1) || code=$?
[ "$code" = 1 ] || failed "a CPU without dot products: exit code $code instead of 1: $said"
case $said in
  *"this CPU lacks DotProd"*) ;;
  *) failed "a CPU without dot products is not refused by that reason: $said" ;;
esac
echo "passed"
