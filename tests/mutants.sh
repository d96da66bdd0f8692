#!/usr/bin/env bash
# Do the tests notice when the code is wrong? cargo-mutants changes one thing at a time in the code
# that says who gets in, and a crate's own tests are run against each change (threat SC-05). Called by
# `make mutants`, which has fetched it. Words are names of PARTS; without any all of them are tried.
#
# SHARD=0/8 tries every eighth change. Which ones nobody noticed is kept in $TARGET/mutants/PART.
set -euo pipefail

# Of 100 changes that can be built so many have to be noticed.
LEAST=90
PARTS='lock replay signature policy sign-in'

out=$TARGET/mutants
# What is built stays from change to change, and from part to part.
export CARGO_TARGET_DIR=$out/build CARGO_PROFILE_DEV_DEBUG=none
rows=()
failed=0

# fail WORDS: it cannot be told how good the tests are.
fail() {
  printf 'mutants: %s\n' "$*" >&2
  exit 1
}

# $(count PART KIND): how many changes of a part came to this.
count() {
  cat "$out/$1/mutants.out/$2.txt" 2>/dev/null | wc -l
}

# tried NAME PACKAGE 'WORDS FOR CARGO' 'TESTS' FILES...: a row for the changes of these files.
tried() {
  local name=$1 package=$2 cargo=$3 tests=$4 words=() status=0 file word missed noticed built
  shift 4
  for file in "$@"; do
    test -e "$file" || fail "$name: there is no $file"
    words+=(--file "$file")
  done
  for word in $cargo; do words+=("--cargo-arg=$word"); done
  test -z "${SHARD:-}" || words+=(--shard "$SHARD" --sharding round-robin)
  rm -rf "${out:?}/$name"
  mkdir -p "$out/$name"
  printf 'mutants: %s\n' "$name"
  # shellcheck disable=SC2086 # each word names tests
  "$MUTANTS" mutants --package "$package" --output "$out/$name" --minimum-test-timeout 30 \
    "${words[@]}" ${tests:+-- -- $tests} || status=$?
  # 2: some were not noticed; 3: one ran without end, which a test's limit of time notices.
  case $status in
    0 | 2 | 3) ;;
    *) fail "$name could not be tried; what happened is in $out/$name" ;;
  esac
  missed=$(count "$name" missed)
  noticed=$(($(count "$name" caught) + $(count "$name" timeout)))
  built=$((missed + noticed))
  ((built > 0)) || fail "$name: nothing was changed that can be built"
  ((noticed * 100 >= LEAST * built)) || failed=1
  rows+=("$(printf '%-10s %8d %8d %8d %8d.%d' "$name" "$noticed" "$missed" "$(count "$name" unviable)" \
    $((noticed * 100 / built)) $((noticed * 1000 / built % 10)))")
}

part() {
  local policy=core/network/policy/src server=shell/server/src
  case $1 in
    lock) tried lock warren-lock '' '' shell/lock/src/*.rs ;;
    replay) tried replay warren-noise --lib replay core/packets/noise/src/replay.rs ;;
    signature) tried signature warren-control --lib '' core/network/control/src/signed.rs ;;
    policy) tried policy warren-policy '' '' $policy/*.rs $policy/{compile,read}/[!t]*.rs ;;
    sign-in)
      tried sign-in warren-server '--lib --test service' \
        'oidc passwords roles origin people secrets signin provider browser' \
        $server/oidc/{jwt,person}.rs $server/{passwords,roles,origin}.rs \
        $server/store/{sessions,persons,secrets}.rs
      ;;
  esac
}

for name in "$@"; do
  [[ " $PARTS " == *" $name "* ]] || fail "there is no part $name, only $PARTS"
done
for name in ${*:-$PARTS}; do part "$name"; done
printf '\n%-10s %8s %8s %8s %10s\n' part noticed missed unbuilt 'of 100'
printf '%s\n' "${rows[@]}"
if ((failed)); then
  fail "fewer than $LEAST of 100 were noticed; those that were not: missed.txt below $out"
fi
