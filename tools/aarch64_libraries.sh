#!/usr/bin/env bash
# Unpacks the arm64 builds of the libraries that the program needs into a folder, from the Debian
# mirrors that this machine uses. Needs no root; nothing outside of the folder changes.
# usage: tools/aarch64_libraries.sh FOLDER    exit 0 at once if they are there
set -euo pipefail

if [ $# != 1 ]; then
  sed -n 's/^# usage: /usage: /p' "$0" >&2
  exit 1
fi
mkdir -p "$1"
folder=$(cd -- "$1" && pwd)
packages=(
  liburing-dev liburing2 libtbb-dev libtbb12 libspdlog-dev libspdlog1.10 libfmt-dev libfmt9
  libxxhash-dev libxxhash0 libutf8proc-dev libutf8proc2 libpcre2-dev libpcre2-8-0 zlib1g-dev zlib1g
  nlohmann-json3-dev libcli11-dev catch2
)
[ "$(cat "$folder/packages.txt" 2>/dev/null)" != "${packages[*]}" ] || exit 0

# An apt of its own: this machine's list of architectures stays as it is.
work=$folder/download
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
: >"$work/status"
own_apt() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= \
    -o Acquire::Languages=none -o Dir::State="$work" -o Dir::State::lists="$work/lists" \
    -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" "$@"
}
own_apt update
(cd "$work" && own_apt download "${packages[@]}")
for package in "$work"/*.deb; do dpkg-deb -x "$package" "$folder"; done
rm -rf "$work"

printf '%s' "${packages[*]}" >"$folder/packages.txt"
