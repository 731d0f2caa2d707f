"""A database with a plain Python encoder, from texts to hits, as a program like `mopqdb`.

    texts.py NAME about BUNDLE                      version and notes, as JSON
    texts.py NAME insert DB BUNDLE THREADS FILE     FILE has lines of key TAB text; returns when all are searchable
    texts.py NAME query DB BUNDLE THREADS           one query per line on stdin, one {"hits": [{"key": ...}, ...]} per line on stdout

NAME is a module of `texts/`. The encoder is onnxruntime and tokenizers with the same bundle as mopqdb: the texts of a call are sorted
by length, as in sentence-transformers, and encoded 32 at a time, padded to the longest of each 32.
"""

import importlib
import json
import os
import sys


class Encoder:
    def __init__(self, bundle, threads):
        import numpy as np
        import onnxruntime
        from tokenizers import Tokenizer

        self.np = np
        with open(os.path.join(bundle, "manifest.json"), encoding="utf-8") as manifest:
            spec = json.load(manifest)["encoder"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            os.path.join(bundle, spec["graph"]), options, providers=["CPUExecutionProvider"]
        )
        self.tokenizer = Tokenizer.from_file(os.path.join(bundle, spec["tokenizer"]))
        self.tokenizer.enable_truncation(spec["key"]["max_tokens"])
        self.tokenizer.enable_padding()

    def __call__(self, texts):
        np, rows = self.np, []
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))
        for start in range(0, len(texts), 32):
            batch = self.tokenizer.encode_batch([texts[n] for n in order[start : start + 32]])
            ids = np.array([e.ids for e in batch], dtype=np.int64)
            mask = np.array([e.attention_mask for e in batch], dtype=np.int64)
            feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
            hidden = self.session.run(["last_hidden_state"], feed)[0]
            mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
            rows.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
        out = np.empty((len(texts), rows[0].shape[1]), dtype=np.float32)
        out[order] = np.concatenate(rows)
        return out


def main():
    name, command = sys.argv[1], sys.argv[2]
    try:
        peer = importlib.import_module(f"texts.{name}")
        import onnxruntime
        import tokenizers
    except Exception as why:  # noqa: BLE001 - the tables report why a peer can't be loaded
        print(json.dumps({"missing": f"{type(why).__name__}: {why}"}))
        return
    if command == "about":
        about = peer.about()
        about["version"] += f", onnxruntime {onnxruntime.__version__}, tokenizers {tokenizers.__version__}"
        print("\n" + json.dumps(about))
        return
    folder, bundle, threads = sys.argv[3], sys.argv[4], int(sys.argv[5])
    encode = Encoder(bundle, threads)
    if command == "insert":
        with open(sys.argv[6], encoding="utf-8") as lines:
            rows = [line.rstrip("\n").split("\t", 1) for line in lines]
        # 2,048 per call, because each call of these databases costs a new file or transaction.
        batches = ([*zip(*rows[start : start + 2048])] for start in range(0, len(rows), 2048))
        peer.insert(folder, encode, batches, len(rows))
        return
    ask = peer.opened(folder, encode)
    for line in sys.stdin:
        print(json.dumps({"hits": [{"key": key} for key in ask(line.rstrip("\n"))]}), flush=True)
    os._exit(0)


main()
