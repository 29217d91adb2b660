#!/usr/bin/env bash
# What the compiler for 64-bit ARM is started by (tools/aarch64.ini). A group of sources is compiled
# as one unit, which takes half the time; where their names clash, each source for itself, joined
# to the one object that meson wants.
# usage: tools/aarch64_group.sh [ccache] aarch64-linux-gnu-g++ FLAGS… -o OBJECT -c SOURCE
set -euo pipefail

source=${*: -1}
case $source in
  *-unity[0-9]*.cpp) ;;
  *) exec "$@" ;; # one source, a link, a question of meson's
esac
if said=$("$@" 2>&1); then
  [ -z "$said" ] || printf '%s\n' "$said" >&2
  exit 0
fi
printf '%s: not as one unit: %s\n' "$source" "$(grep -m 1 'error' <<<"$said")" >&2

flags=("${@:1:$#-1}")
for ((i = 0; i < ${#flags[@]}; ++i)); do
  case ${flags[i]} in
    -o) object_at=$((i + 1)) ;;
    -MF) depfile_at=$((i + 1)) ;;
  esac
done
object=${flags[object_at]}
depfile=${flags[depfile_at]}
parts=()
while IFS= read -r part; do
  flags[object_at]=$object.${#parts[@]}.o
  flags[depfile_at]=$object.${#parts[@]}.d
  "${flags[@]}" "$part"
  parts+=("${flags[object_at]}")
done < <(sed -n 's/^#include *[<"]\(.*\)[>"]$/\1/p' "$source")
aarch64-linux-gnu-ld -r -o "$object" "${parts[@]}"
cat "${parts[@]/%.o/.d}" >"$depfile"
rm "${parts[@]}" "${parts[@]/%.o/.d}"
