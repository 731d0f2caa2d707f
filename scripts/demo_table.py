#!/usr/bin/env python3
"""Prints the table of `make demo` from what `mopqdb eval` and `mopqdb bench` wrote: demo_table.py FOLDER."""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])


def lines(name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


found = {(line["method"], line["search"]): line for line in lines("eval.json")}
# What is shown: a line of eval, the run of bench that times it, and what stays in memory besides the word index.
ways = [
    ("exact: every full-precision vector", ("mopq", "exact"), "exact"),
    ("OPQ codes alone", ("opq", "codes"), "opq"),
    ("MoPQ codes alone", ("mopq", "codes"), "mopq"),
    ("words alone (BM25)", ("mopq", "words"), "words"),
    ("codes and words, re-scored, learned weights", ("mopq", "auto"), "auto"),
]

print(f"\n\033[1m{'':45} {'R@1':>6} {'R@10':>6} {'of exact':>9} {'us':>8} {'bytes per row':>14}\033[0m")
for name, line, bench in ways:
    recall = found[line]["recall"]
    ratio = found[line].get("ratio_to_exact", {}).get("10", {}).get("mean")
    timed = lines(bench + ".json")[0]
    print(
        f"{name:45} {recall['1']:6.3f} {recall['10']:6.3f} {f'{ratio:.3f}' if ratio else '':>9}"
        f" {timed['p50_us']:8.0f} {timed['scanned_bytes_per_row']:14.0f}"
    )
eval_lines = list(found.values())
print(
    f"{eval_lines[0]['queries']} test queries over {eval_lines[0]['rows']} rows. us: median per query, one thread, encoder"
    " excluded.\nBytes per row: what each query reads of every row, so what is worth keeping in memory; stored vectors of"
    " candidates\nand postings of the query's words are read from disk or the page cache."
)
