#!/usr/bin/env bash
# Runs the long fault tests, one binary after the other, and collects the lines on which each reports what it tried.
set -euo pipefail
summary=${1:?usage: torture.sh SUMMARY}
log=$summary.log
started=$SECONDS
export MOPQDB_TORTURE=1 MOPQDB_REQUIRE_NATIVE=1
: >"$log"
for test in faults interleavings; do
  cargo test --quiet --test "$test" -- --nocapture --test-threads="${TORTURE_THREADS:-2}" 2>&1 | tee -a "$log"
done
{
  echo "torture: commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $((SECONDS - started)) s, nothing lost:"
  sed -n 's/^FAULTS /  /p' "$log"
  awk '/^FAULTS /{n += $2} END {printf "  %d in total\n", n}' "$log"
} >"$summary"
cat "$summary"
