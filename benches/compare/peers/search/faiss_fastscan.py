"""faiss IndexPQFastScan: codes of four bits, whose tables fit into registers; with and without a rotation."""

from . import faiss_common as common


def about():
    return common.about("faiss PQFastScan")


def settings(_rows, dim, bytes):
    subspaces = 2 * bytes
    if dim % subspaces != 0:
        return []
    rotated = [{"subspaces": subspaces, "opq": opq} for opq in [False, True]]
    # Without SIMD it looks up codes one by one, a tenth as fast, so that is never its best setting.
    levels = [level for level in common.levels() if level.get("level") != "NONE"]
    return [{"build": build, "bytes": bytes, "search": levels} for build in rotated]


def build(rows, about, folder, setting):
    m = setting["subspaces"]
    text = f"OPQ{m},PQ{m}x4fs" if setting["opq"] else f"PQ{m}x4fs"
    common.fill(common.factory(about["dim"], text), rows, folder, train=True)


open, search, insert = common.open, common.search, common.insert
