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
  printf 'skipped: %s (tools/install_packages.sh --tests fetches it)\n' "$1"
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
compile() { nice ninja -C "$build" -j "$(nproc)" "$@"; } # other tests run beside it

emulate() { # CPU, program and its arguments
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E XDG_CACHE_HOME=/dev/null \
    -E LD_LIBRARY_PATH="$libraries/usr/lib/aarch64-linux-gnu:$libraries/lib/aarch64-linux-gnu" \
    -cpu "$@"
}

# Both sets of kernels, while the program is still being compiled. Not: tiles of AMX, of which there
# is no NEON form.
compile tests/kernels/kernels_tests
emulate max "$build/tests/kernels/kernels_tests" "~tiles:*" >"$build/kernels.txt" 2>&1 &
kernels=$!
compile tools/millrace model/embedded/little-tales-moe-42M-mxfp4.gguf

# The prompt is long enough for panels; experts are read again and again.
story=(run -n 8 --cache 25% --temp 0.7 --repeat-penalty 1.1 --seed 7 --json -p
  "Once upon a time a miller had three sons, his mill, a donkey and a cat; the sons had to grind")
# A run's instruction set, state hash, reader, and whether experts came from the file.
result_of() {
  python3 -c '
import json, sys
said = json.load(sys.stdin)
streamed = "streamed" if said["cache"]["misses"] > said["cache"]["slots"] else "not streamed"
print(said["isa"], said["state_hash"], said["io"]["reader"], streamed)'
}
expect() { # instruction set, CPU, further flags of both runs
  local here found hash
  here=$(XDG_CACHE_HOME=/dev/null "$program" "${story[@]}" "${@:3}" | result_of)
  found=$(emulate "$2" "$build/tools/millrace" "${story[@]}" --isa "$1" "${@:3}" | result_of)
  printf 'here: %s; on %s: %s\n' "$here" "$2" "$found"
  hash=$(cut -d ' ' -f 2 <<<"$here")
  # The emulator has no io_uring, so threads read.
  [ "$found" = "$1 $hash threads streamed" ] || failed "$1: not that state hash, or not by threads"
}
expect neon cortex-a53 # which traps what only later CPUs have
expect neon-dotprod max
expect neon-dotprod max --activations f32

code=0
said=$(emulate cortex-a53 "$build/tools/millrace" "${story[@]}" --isa neon-dotprod 2>&1) || code=$?
[ "$code" = 1 ] || failed "a CPU without dot products: exit code $code instead of 1: $said"
case $said in
  *"this CPU lacks DotProd"*) ;;
  *) failed "a CPU without dot products is not refused by that reason: $said" ;;
esac

wait "$kernels" || { cat "$build/kernels.txt"; failed "the kernel tests"; }
tail -n 2 "$build/kernels.txt"
echo "passed"
