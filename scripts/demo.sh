#!/usr/bin/env bash
# The main job, end to end, on real texts: the doc comments of this project's own dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."

began=$SECONDS
times=()
lap() { times+=("$(printf '%5ss  %s' "$((SECONDS - lapped))" "$1")"); lapped=$SECONDS; }
lapped=$SECONDS
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# A command as a shell reads it: in single quotes what has more than plain characters.
quoted() {
  local word line=
  for word in "$@"; do
    if [[ ! $word =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]]; then word="'${word//\'/\'\\\'\'}'"; fi
    line+=" $word"
  done
  printf '%s\n' "${line# }"
}
run() { printf '$ '; quoted target/debug/mopqdb "$@"; target/debug/mopqdb "$@"; }
# Leaves the new model's id in `model`.
train() { printf '$ '; quoted target/debug/mopqdb train demo.db "$@"; model=$(target/debug/mopqdb train demo.db "$@"); printf '%s\n' "$model"; }

say "Building the program and the trainer"
cargo build --workspace --bins --quiet
lap "building"

say "Collecting doc comments"
target/debug/doc-comments Cargo.lock demo.data
lap "collecting doc comments"

say "Inserting them as texts, through the ONNX encoder"
run insert demo.db demo.data/rows.jsonl
lap "inserting"

question="split a string at whitespace"
say "Searching, exactly: nothing is trained yet"
run query demo.db "$question" -k 3
lap "querying"

say "Training OPQ: codes of 8 bytes, fitted to reconstruct the vectors"
train --method opq
run rebuild demo.db --model "$model"
lap "OPQ: training and rebuilding"

say "Training MoPQ: codes of 8 bytes, fitted to find the right answer"
train --pairs demo.data/train.tsv --valid demo.data/valid.tsv --key-ids
run rebuild demo.db --model "$model"
lap "MoPQ: training and rebuilding"

say "Searching again, in 8 bytes per row"
run query demo.db "$question" -k 3
lap "querying"

say "Recall on pairs of crates that no training saw"
run eval demo.db --pairs demo.data/test.tsv --key-ids --model all -k 10
lap "evaluating"

say "Where the time went"
printf '%s\n' "${times[@]}"
printf '%5ss  in all\n' "$((SECONDS - began))"
printf '\nSearch on: %s\n' "$(quoted target/debug/mopqdb query demo.db "iterate over two slices at once")"
