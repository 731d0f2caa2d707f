# Measuring beside peers, on this machine. Included by the Makefile.
PEERS := target/peers
PEERS_PYTHON := $(PEERS)/venv/bin/python
# Unpacked data sets, one folder each; without it `make compare` searches synthetic rows only, and says so.
COMPARE_DATA ?=
# More flags: --quick, --cases wiki-384, --peers faiss, ... (`target/release/compare run --help` lists them).
COMPARE_ARGS ?=

.PHONY: bench bench-criterion compare peers

# Release builds do not look for the checkout's native parts by themselves.
compare bench bench-criterion: export MOPQDB_HOME := $(CURDIR)/.native

# The default encoder is made by the release build, as nothing else here needs another.
compare: native-onnxruntime native-model native-libtorch peers ## mopqdb and other indexes and databases; figures in target/compare (COMPARE_DATA=FOLDER)
	cargo build --release --workspace --bins
	@test -f .native/bundles/default/manifest.json || target/release/mopqdb setup --dir .native
	target/release/compare run --python $(PEERS_PYTHON) --data "$(COMPARE_DATA)" $(COMPARE_ARGS)

bench: peers ## mopqdb and faiss-cpu on the same codes in the same run: target/bench/table.md
	cargo build --release --workspace --bin beside_faiss
	target/release/beside_faiss --python $(PEERS_PYTHON) --out target/bench $(BENCH_ARGS)

bench-criterion: ## the criterion benches
	cargo bench -p mopqdb-benches

# Wheels from PyPI, in an environment of their own; one that does not install is named, and the rest goes on.
peers:
	@benches/peers/fetch.sh $(PEERS)
