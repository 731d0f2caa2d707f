"""lancedb with its IVF_PQ index, the best rows by codes re-ranked by full-precision vectors, which it reads from disk."""

from . import lancedb_pq as plain


def about():
    return plain.about("lancedb IVF_PQ, re-ranked")


def settings(rows, dim, bytes):
    return plain.settings(rows, dim, bytes, refine=10)


build, open, search, insert = plain.build, plain.open, plain.search, plain.insert
