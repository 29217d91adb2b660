#!/usr/bin/env bash
# What the compiler for 64-bit ARM is started by (tools/aarch64.ini). A group of sources is compiled
# as one unit, which takes less than half the time; where their names clash, each half of the group
# as one, and so on, joined to the one object that meson wants.
# usage: tools/aarch64_group.sh [ccache] aarch64-linux-gnu-g++ FLAGS… -o OBJECT -c SOURCE
set -euo pipefail

source=${*: -1}
case $source in
  *-unity[0-9]*.cpp) ;;
  *) exec "$@" ;; # one source, a link, a question of meson's
esac
flags=("${@:1:$#-1}")
for ((i = 0; i < ${#flags[@]}; ++i)); do
  case ${flags[i]} in
    -o) object_at=$((i + 1)) ;;
    -MF) depfile_at=$((i + 1)) ;;
  esac
done
object=${flags[object_at]}
depfile=${flags[depfile_at]}
mapfile -t sources < <(sed -n 's/^#include *[<"]\(.*\)[>"]$/\1/p' "$source")
objects=()

# Compiles the sources from index $1 up to $2.
compile() {
  local name=$object.$1-$2 count=$(($2 - $1)) file=$source said middle
  flags[object_at]=$name.o
  flags[depfile_at]=$name.d
  if [ "$count" -lt ${#sources[@]} ]; then
    file=$name.cpp
    printf '#include "%s"\n' "${sources[@]:$1:$count}" >"$file"
  fi
  if said=$("${flags[@]}" "$file" 2>&1); then
    [ -z "$said" ] || printf '%s\n' "$said" >&2
    objects+=("$name.o")
    return
  fi
  if [ "$count" = 1 ]; then
    printf '%s\n' "$said" >&2
    exit 1
  fi
  printf '%s, %d of %d: not as one unit: %s\n' "$source" "$count" "${#sources[@]}" \
    "$(grep -m 1 'error' <<<"$said")" >&2
  middle=$((($1 + $2) / 2))
  compile "$1" "$middle"
  compile "$middle" "$2"
}
compile 0 "${#sources[@]}"

aarch64-linux-gnu-ld -r -o "$object" "${objects[@]}"
sed "s#$object\.[0-9]*-[0-9]*\.cpp##" "${objects[@]/%.o/.d}" >"$depfile" # without our own
rm -f "$object".*-*
