"""One search peer, one process, one JSON object on stdout. The driver is `compare` (../src).

    peer.py NAME about                                     version, whether an insert survives a crash
    peer.py NAME settings ROWS DIM BYTES                   the settings to sweep, with codes of BYTES per row
    peer.py NAME build CASE INDEX SETTING                  makes and saves an index
    peer.py NAME search CASE INDEX SETTING ASKING HITS     opens it, writes HITS with "fetch" rows per query (int64, -1: none),
                                                           and times queries one at a time and in batches
    peer.py NAME insert CASE INDEX SETTING                 inserts more rows, 100 per call

CASE contains rows.npy, queries.npy and more.npy (float32) and case.json {"rows", "dim", "normalised", "fetch"}. SETTING is
an entry of `settings`, as JSON. A peer is a module of `search/` with these functions: `about`, `settings`, `build`, `open`,
`search`, `insert`. Scores are inner products; larger is better. ASKING is JSON: threads, seconds and repeats of each
timing, queries per batch (0: no batches are timed), and the limit in seconds for the hits of all queries. After that, the
remaining queries are skipped.
"""

import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

# A timing that takes this many times longer than requested is not repeated more than three times.
LONG = 3

# Waiting threads must not spin, so that their CPU time does not count.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def threads_of(command, arguments):
    # Building is reported in CPU seconds, which waiting threads of OpenMP and OpenBLAS use too: so one thread.
    return json.loads(arguments[3])["threads"] if command == "search" else 1


def limit_threads(count):
    for name in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "LANCE_CPU_THREADS", "TOKIO_WORKER_THREADS"]:
        os.environ[name] = str(count)


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def disk(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def timed(work):
    wall, cpu = time.perf_counter(), time.process_time()
    count = work()
    return {"count": count, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def run(command, peer, arguments):
    import numpy as np

    case = Path(arguments[0])
    about = json.loads((case / "case.json").read_text())
    # Absolute: ScaNN looks for its parts relative to the index.
    folder, setting = Path(arguments[1]).resolve(), json.loads(arguments[2])
    if command == "build":
        folder.mkdir(parents=True, exist_ok=True)
        rows = np.load(case / "rows.npy", mmap_mode="r")

        def work():
            peer.build(rows, about, folder, setting)
            return len(rows)

        return {"build": timed(work), "disk": disk(folder)}
    if command == "insert":
        more = np.load(case / "more.npy")
        index = peer.open(folder, about, setting, 1)

        def work():
            for start in range(0, len(more), 100):
                some = more[start : start + 100]
                ids = np.arange(start, start + len(some)) + about["rows"]
                if peer.insert(index, some, ids, setting) is False:
                    return 0
            return len(more)

        return {"insert": timed(work)}
    return search(peer, case, about, folder, setting, arguments[3:])


def search(peer, case, about, folder, setting, arguments):
    import numpy as np

    asking, hits = json.loads(arguments[0]), arguments[1]
    threads, seconds, repeats = asking["threads"], asking["seconds"], asking["repeats"]
    queries = np.load(case / "queries.npy")
    fetch = about["fetch"]
    before = resident()
    # A mapped file is open before it is read, so the first answer counts too.
    opened = time.perf_counter()
    index = peer.open(folder, about, setting, threads)
    peer.search(index, queries[:1], fetch, setting, threads)
    opened = time.perf_counter() - opened

    # The first calls are small, so that a slow peer does not exceed its limit by much.
    found, began, start, some = [], time.perf_counter(), 0, 8
    while start < len(queries):
        found.append(peer.search(index, queries[start : start + some], fetch, setting, threads))
        if time.perf_counter() - began > asking["limit"]:
            break
        start, some = start + some, min(64, 2 * some)
    np.concatenate(found).astype("<i8").tofile(hits)

    def passes(batch):
        def work():
            done, until = 0, time.perf_counter() + seconds
            while True:
                at = done % max(1, len(queries) - batch)
                peer.search(index, queries[at : at + batch], fetch, setting, threads)
                done += batch
                if time.perf_counter() >= until:
                    return done

        # If a call takes long, three repeats are enough.
        done = []
        while len(done) < min(repeats, 3) or len(done) < repeats and sum(t["wall"] for t in done) < LONG * seconds * repeats:
            done.append(timed(work))
        return done

    one = passes(1)
    # A peer that takes one query per call has no larger batches.
    batch = [] if asking["batch"] == 0 else passes(asking["batch"]) if peer.about().get("batches", True) else one
    return {"open": opened, "one": one, "batch": batch, "ram": resident() - before}


def main():
    name, command, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
    limit_threads(threads_of(command, arguments))
    try:
        peer = importlib.import_module(f"search.{name}")
        out = peer.about()
    except Exception as why:  # noqa: BLE001 - the tables report why a peer can't be loaded
        print(json.dumps({"missing": f"{type(why).__name__}: {why}"}))
        return
    if command == "settings":
        out = peer.settings(*map(int, arguments))
    elif command != "about":
        out = run(command, peer, arguments)
    # Some libraries print to stdout: the answer is the last line.
    print("\n" + json.dumps(out))
    sys.stdout.flush()
    os._exit(0)  # some libraries would wait for their threads


main()
