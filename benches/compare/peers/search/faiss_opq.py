"""faiss OPQ, then PQ: a rotation before the codes."""

from . import faiss_common as common


def about():
    return common.about("faiss OPQ+PQ")


def settings(_rows, dim, bytes):
    return [{"build": {"subspaces": bytes}, "bytes": bytes, "search": common.levels()}] if dim % bytes == 0 else []


def build(rows, about, folder, setting):
    dim, subspaces = about["dim"], setting["subspaces"]
    common.fill(common.factory(dim, f"OPQ{subspaces},PQ{subspaces}x8np"), rows, folder, train=True)


open, search, insert = common.open, common.search, common.insert
