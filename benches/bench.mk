# Measurements of mopqdb and its peers on this machine. Included by the Makefile.
PEERS := target/peers
PEERS_PYTHON := $(PEERS)/venv/bin/python
# Unpacked data sets, one folder each. Without them `make compare` searches only synthetic rows, and says so.
COMPARE_DATA ?=
# More flags: --quick, --cases wiki-384, --peers faiss, ... (`target/release/compare run --help` lists them).
COMPARE_ARGS ?=

.PHONY: bench bench-criterion compare peers

# Release builds do not search the checkout for native parts.
compare bench bench-criterion: export MOPQDB_HOME := $(CURDIR)/.native

# The release build makes the default encoder, because no other build is needed here.
compare: native-onnxruntime native-model native-libtorch peers ## measure mopqdb and other indexes and databases; results in target/compare (COMPARE_DATA=FOLDER)
	cargo build --release --workspace --bins
	@test -f .native/bundles/default/manifest.json || target/release/mopqdb setup --dir .native
	target/release/compare run --python $(PEERS_PYTHON) --data "$(COMPARE_DATA)" $(COMPARE_ARGS)

bench: peers ## measure mopqdb and faiss-cpu on the same codes in one run: target/bench/table.md
	cargo build --release --workspace --bin versus_faiss
	target/release/versus_faiss --python $(PEERS_PYTHON) --out target/bench $(BENCH_ARGS)

bench-criterion: ## run the criterion benches
	cargo bench -p mopqdb-benches

# Installs wheels from PyPI in a virtual environment. One that can't be installed is reported, and the others are installed.
peers:
	@benches/peers/fetch.sh $(PEERS)
