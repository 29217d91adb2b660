# Sourced by run.sh and test.sh: the steps that both share, each announced and timed on stderr.

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build=$repo/build
step_name=

# Milliseconds since some start.
now_ms() { echo $(($(date +%s%N) / 1000000)); }

step() {
  step_name=$1
  step_began=$(now_ms)
  printf '== %s\n' "$step_name" >&2
}

step_done() {
  local took=$(($(now_ms) - step_began))
  printf '== %s: %d.%01d s\n' "$step_name" $((took / 1000)) $((took % 1000 / 100)) >&2
  step_name=
}

on_exit() {
  local code=$?
  if [ "$code" != 0 ] && [ -n "$step_name" ]; then
    printf '== %s failed (exit code %d)\n' "$step_name" "$code" >&2
  fi
}
trap on_exit EXIT

# install_packages [--tests]
install_packages() {
  step "install packages that are missing"
  "$repo/tools/install_packages.sh" "$@" >&2
  step_done
}

# configure [OPTION…]: makes build/ when there is none, else sets options that changed.
configure() {
  local set_before=$build/options-of-script.txt
  step "configure build/"
  if [ ! -f "$build/build.ninja" ]; then
    meson setup "$build" "$repo" --buildtype=release "$@" >&2
    printf '%s' "$*" >"$set_before"
  elif [ $# -gt 0 ] && [ "$(cat "$set_before" 2>/dev/null)" != "$*" ]; then
    meson configure "$build" "$@" >&2
    printf '%s' "$*" >"$set_before"
  fi
  step_done
}

# compile [TARGET…]: everything without arguments.
compile() {
  step "build"
  ninja -C "$build" "$@" >&2
  step_done
}
