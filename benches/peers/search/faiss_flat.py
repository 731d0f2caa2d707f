"""faiss IndexFlatIP: every row whole."""

import faiss

from . import faiss_common as common

NAME = "faiss IndexFlat"


def about():
    return common.about(NAME)


def settings(_rows, dim, _bytes):
    return [{"build": {}, "bytes": 4 * dim, "search": common.levels()}]


def build(rows, about, folder, _setting):
    common.fill(faiss.IndexFlatIP(about["dim"]), rows, folder)


open, search, insert = common.open, common.search, common.insert
