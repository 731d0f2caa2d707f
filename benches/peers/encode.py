"""The peer of the encoder bench: plain onnxruntime + tokenizers, texts in the given order, 32 at a time, padded to the
longest of each batch. Prints how long encoding took, in wall-clock seconds and in CPU seconds of all threads.

    encode.py BUNDLE WORK THREADS DIM       WORK contains texts.json and mopqdb's vectors.f32, for comparison
"""

import json
import os
import sys
import time

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

bundle, work, threads, dim = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
texts = json.load(open(os.path.join(work, "texts.json"), encoding="utf-8"))
ours = np.fromfile(os.path.join(work, "vectors.f32"), dtype="<f4").reshape(-1, dim)
spec = json.load(open(os.path.join(bundle, "manifest.json"), encoding="utf-8"))["encoder"]

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(os.path.join(bundle, spec["graph"]), options, providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(os.path.join(bundle, spec["tokenizer"]))
tokenizer.enable_truncation(spec["key"]["max_tokens"])
tokenizer.enable_padding()


def encode(texts):
    rows = []
    for start in range(0, len(texts), 32):
        batch = tokenizer.encode_batch(texts[start : start + 32])
        ids = np.array([e.ids for e in batch], dtype=np.int64)
        mask = np.array([e.attention_mask for e in batch], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(["last_hidden_state"], feed)[0]
        mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        rows.append(mean / np.linalg.norm(mean, axis=1, keepdims=True))
    return np.concatenate(rows)


encode(texts[: len(texts) // 4])
started, cpu = time.perf_counter(), time.process_time()
theirs = encode(texts)
seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
least = (ours * theirs).sum(1).min()
assert least > 0.99, f"vectors differ: cosine {least}"
print(seconds, cpu)
