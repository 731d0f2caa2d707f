#!/usr/bin/env bash
# The main use, end to end, on real texts: the doc comments of this project's dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."
exec 3>&1

began=$SECONDS
times=()
lap() { times+=("$(printf '%5ss  %s' "$((SECONDS - lapped))" "$1")"); lapped=$SECONDS; }
lapped=$SECONDS
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# Prints a command as one would type it: words with special characters are in single quotes.
quoted() {
  local word line=
  for word in "$@"; do
    if [[ ! $word =~ ^[A-Za-z0-9_./:=@%+,-]+$ ]]; then word="'${word//\'/\'\\\'\'}'"; fi
    line+=" $word"
  done
  printf '%s\n' "${line# }"
}
# The command goes to the terminal, even if the answer goes to a file.
run() { { printf '$ '; quoted target/debug/mopqdb "$@"; } >&3; target/debug/mopqdb "$@"; }
# Sets `model` to the new model's id.
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
say "Searching at once: nothing is trained, every stored vector is compared"
run query demo.db "$question" -k 3
lap "querying"

# One query at a time on one thread, without the time of the encoder, which is the same for all.
cut -f 1 demo.data/test.tsv > demo.data/questions.txt
rm -f demo.data/*.json
bench() { run bench demo.db --search "$1" --queries demo.data/questions.txt --threads 1 --seconds 2 --json > "demo.data/$2.json"; }

say "Learning OPQ codes: 8 bytes per row, fitted to reconstruct the vectors"
train --method opq
opq=$model
run rebuild demo.db --model "$opq"
lap "OPQ: training and rebuilding"
say "By these codes alone"
run query demo.db "$question" -k 3 --search codes
bench codes opq
lap "measuring"

say "Learning MoPQ codes and how to score candidates, from pairs of question and answer"
train --pairs demo.data/train.tsv --valid demo.data/valid.tsv --key-ids
mopq=$model
run rebuild demo.db --model "$mopq"
lap "MoPQ: training and rebuilding"
say "By these codes alone"
run query demo.db "$question" -k 3 --search codes
say "By codes and words, ordered by stored vectors: the default"
run query demo.db "$question" -k 3
say "What each stage of this query did"
run query demo.db "$question" -k 3 --explain > /dev/null
lap "querying"

say "Measuring on pairs of crates that no training saw"
bench codes mopq
bench exact exact
bench words words
bench auto auto
run eval demo.db --pairs demo.data/test.tsv --key-ids --model "$mopq" --model "$opq" --search codes,auto,exact,words -k 1,10 --json > demo.data/eval.json
lap "measuring"

python3 scripts/demo_table.py demo.data

say "Where the time went"
printf '%s\n' "${times[@]}"
printf '%5ss  in total\n' "$((SECONDS - began))"
printf '\nSearch on, and compare:\n'
for words in "iterate over two slices at once" "run code when a value goes out of scope"; do
  for search in codes auto exact; do
    printf '  %s\n' "$(quoted target/debug/mopqdb query demo.db "$words" -k 3 --search "$search")"
  done
done
