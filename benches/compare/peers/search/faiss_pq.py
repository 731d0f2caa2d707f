"""faiss IndexPQ: one byte per subspace, every row scanned."""

from . import faiss_common as common


def about():
    return common.about("faiss IndexPQ")


def settings(_rows, dim, bytes):
    return [{"build": {"subspaces": bytes}, "bytes": bytes, "search": common.levels()}] if dim % bytes == 0 else []


def build(rows, about, folder, setting):
    common.fill(common.factory(about["dim"], f"PQ{setting['subspaces']}x8np"), rows, folder, train=True)


open, search, insert = common.open, common.search, common.insert
