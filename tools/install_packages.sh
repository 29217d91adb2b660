#!/usr/bin/env bash
# Installs the Debian packages that building needs, if any is missing. Asks nothing.
# usage: tools/install_packages.sh [--tests]    --tests: also what a test would be skipped without
set -euo pipefail

needed=(
  meson ninja-build g++ pkg-config python3
  liburing-dev libtbb-dev libspdlog-dev libfmt-dev libxxhash-dev libcli11-dev nlohmann-json3-dev
  libpcre2-dev libutf8proc-dev zlib1g-dev
  catch2
)
wanted=()
tests=${1:-}
if [ "$tests" = --tests ]; then wanted=(clang-format-14 valgrind); fi
# 64-bit ARM is tested by emulation on any other machine.
if [ "$tests" = --tests ] && [ "$(uname -m)" != aarch64 ]; then
  wanted+=(g++-aarch64-linux-gnu qemu-user)
fi

say() { printf '%s\n' "packages: $*"; }

# The libraries that the program for 64-bit ARM is linked with, where its test looks for them.
unpack_arm64_libraries() {
  local tools log
  case "${wanted[*]-}" in *aarch64*) ;; *) return 0 ;; esac
  tools=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
  log=$("$tools/aarch64_libraries.sh" "$tools/../build/aarch64-libraries" 2>&1) || {
    say "arm64 libraries: not to be had here; what needs them is skipped"
    printf '%s\n' "$log" | tail -n 3
  }
}

# Those of the arguments that dpkg does not have installed, one a line.
missing_of() {
  local package
  for package in "$@"; do
    if [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
      printf '%s\n' "$package"
    fi
  done
}

# Elsewhere nothing is installed; what is there may be enough.
check_without_dpkg() {
  local lacking=() tool module
  for tool in meson ninja c++ pkg-config python3; do
    command -v "$tool" >/dev/null || lacking+=("$tool")
  done
  for module in liburing tbb spdlog fmt libxxhash CLI11 nlohmann_json libpcre2-8 libutf8proc zlib \
    catch2; do
    pkg-config --exists "$module" 2>/dev/null || lacking+=("$module")
  done
  if [ ${#lacking[@]} -gt 0 ]; then
    say "this is not Debian or a relative of it, so nothing was installed."
    say "Not found here: ${lacking[*]}"
    say "Debian 12 calls what is needed: ${needed[*]}"
    exit 1
  fi
  say "not Debian, but all that is needed was found"
}

run_apt() {
  if [ "$(id -u)" = 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get "$@"
  else
    sudo DEBIAN_FRONTEND=noninteractive apt-get "$@"
  fi
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  check_without_dpkg
  exit 0
fi

mapfile -t missing < <(missing_of "${needed[@]}")
mapfile -t missing_wanted < <(missing_of ${wanted[@]+"${wanted[@]}"})
if [ ${#missing[@]} -eq 0 ] && [ ${#missing_wanted[@]} -eq 0 ]; then
  say "all ${#needed[@]} are installed"
  unpack_arm64_libraries
  exit 0
fi
if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
  if [ ${#missing[@]} -eq 0 ]; then
    say "without ${missing_wanted[*]} (neither root nor sudo); what needs it is skipped"
    unpack_arm64_libraries
    exit 0
  fi
  say "missing, and neither root nor sudo to install them: as root, run"
  say "  apt-get install ${missing[*]}"
  exit 1
fi

say "installing with apt-get: ${missing[*]} ${missing_wanted[*]}"
run_apt update -qq
if [ ${#missing[@]} -gt 0 ]; then
  run_apt install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
for package in ${missing_wanted[@]+"${missing_wanted[@]}"}; do
  run_apt install -y -qq --no-install-recommends "$package" >/dev/null ||
    say "$package: not to be had here; what needs it is skipped"
done
mapfile -t missing < <(missing_of "${needed[@]}")
if [ ${#missing[@]} -gt 0 ]; then
  say "still missing: ${missing[*]}"
  exit 1
fi
unpack_arm64_libraries
