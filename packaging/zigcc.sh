#!/bin/sh
# The C compiler for another processor's musl: zig's, which has headers for every one. Called by cargo
# with words of clang's that zig has its own form of. $ZIG is the program, $ZIG_TARGET the processor.
set -eu
for word in "$@"; do
  shift
  case "$word" in
    --target=*) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec "$ZIG" cc -target "$ZIG_TARGET" "$@"
