"""Measures the end-to-end job, from texts to hits, for mopqdb and the modules of `texts/`. `compare` calls it; it prints one JSON object.

    whole.py WORK MOPQDB BUNDLE TEXTS QUERIES      WORK contains set.json {"keys", "queries", "right", "own"}

Each system is a program: `insert` reads a file of texts and returns when all are durable and searchable (mopqdb: with `train` and
`rebuild`), `query` reads one query per line. Insert times include loading the model and encoding. CPU seconds and peak resident bytes are those that
Linux reports for a process.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

K = 10
# From this many texts on, mopqdb gets OPQ codes of 8 bytes, and lancedb (texts/lancedb_texts.py) an index with as many bytes.
CODES = 65_536
TEXTS = Path(__file__).with_name("texts.py")


def chosen(all, texts, queries):
    """Returns the first test queries and the rows to insert: their right answers, which take at most half of the rows, then others."""
    asked, rows = [], set()
    for n, right in enumerate(all["right"]):
        if len(asked) == queries or len(rows) + len(right) > texts // 2:
            break
        if all["queries"][n].strip():
            asked.append(n)
            rows.update(right)
    for row in range(len(all["keys"])):
        if len(rows) >= texts:
            break
        rows.add(row)
    return asked, sorted(rows)


def ended(process):
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args[0]} failed: {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def cpu_of(pid):
    # The name, in parentheses, may contain any characters.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(about, inserts, query, db, count, all, asked):
    began, cpu, memory = time.perf_counter(), 0, 0
    for command in inserts:
        used = ended(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        cpu, memory = cpu + used[0], max(memory, used[1])
    wall = time.perf_counter() - began
    # Models share equal files by hard links: each file counts once.
    files = [path.stat() for path in db.rglob("*") if path.is_file()]
    disk = sum({file.st_ino: file.st_size for file in files}.values())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "encoding": "utf-8"}
    process = subprocess.Popen(query, **pipes)

    def ask(query):
        began = time.perf_counter()
        process.stdin.write(query + "\n")
        process.stdin.flush()
        # Libraries print messages, but an answer is a JSON object.
        while not (line := process.stdout.readline()).startswith("{"):
            if not line:
                raise RuntimeError("it ended before it answered")
        hits = [int(hit["key"]) for hit in json.loads(line)["hits"]]
        return time.perf_counter() - began, hits

    # The model is loaded and warm before the clock starts.
    for n in asked[:5]:
        ask(all["queries"][n])
    before, times, recall = cpu_of(process.pid), [], 0
    for n in asked:
        seconds, hits = ask(all["queries"][n])
        times.append(1e3 * seconds)
        hits = [hit for hit in hits if hit != all["own"][n]][:K]
        recall += sum(row in hits for row in all["right"][n]) / len(all["right"][n])
    query_cpu = cpu_of(process.pid) - before
    process.stdin.close()
    _, query_memory = ended(process)
    times.sort()
    return {
        "name": about["name"],
        "version": about["version"],
        "insert_wall": count / wall,
        "insert_cpu": count / cpu,
        "p50_ms": times[len(times) // 2],
        "p99_ms": times[len(times) * 99 // 100],
        "query_cpu_ms": 1e3 * query_cpu / len(asked),
        "disk": disk / count,
        "insert_memory": memory / 1e6,
        "query_memory": query_memory / 1e6,
        "recall_true": recall / len(asked),
    }


def main():
    work, mopqdb, bundle, texts, queries = Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:])
    all = json.loads((work / "set.json").read_text(encoding="utf-8"))
    asked, rows = chosen(all, texts, queries)
    file, threads = str(work / "texts.tsv"), str(os.cpu_count())
    with open(file, "w", encoding="utf-8") as lines:
        for row in rows:
            text = all["keys"][row].replace("\t", " ").replace("\n", " ")
            lines.write(f"{row}\t{text}\n")
    for name in ["OMP_NUM_THREADS", "RAYON_NUM_THREADS", "LANCE_CPU_THREADS"]:
        os.environ[name] = threads
    out = {"peers": [], "missing": []}
    for name in ["mopqdb", "lancedb_texts", "chroma_texts"]:
        db = work / name
        try:
            if name == "mopqdb":
                about = {"name": name, "version": subprocess.check_output([mopqdb, "--version"], text=True).split()[-1]}
                inserts = [["insert", str(db), file, "--no-auto"]]
                if len(rows) >= CODES:
                    inserts += [["train", str(db), "--method", "opq"], ["rebuild", str(db)]]
                inserts = [[mopqdb, *command, "--threads", threads] for command in inserts]
                query = [mopqdb, "query", str(db), "--stdin", "--json", "-k", str(K + 1), "--threads", threads]
            else:
                peer = [sys.executable, str(TEXTS), name]
                about = json.loads(subprocess.check_output([*peer, "about", bundle], text=True).splitlines()[-1])
                if "missing" in about:
                    raise RuntimeError(about["missing"])
                inserts = [[*peer, "insert", str(db), bundle, threads, file]]
                query = [*peer, "query", str(db), bundle, threads]
            out["peers"].append(measure(about, inserts, query, db, len(rows), all, asked))
        except Exception as why:  # noqa: BLE001 - a peer that fails is reported, and the others are measured
            out["missing"].append({"name": name, "why": f"{type(why).__name__}: {why}"})
    print(json.dumps(out))


main()
