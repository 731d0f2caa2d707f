# Side by side with peers, on this machine, now. Included by the Makefile.
PEERS := target/peers
PEERS_PYTHON := $(PEERS)/venv/bin/python
# Unpacked data sets, a folder each; without it `make compare` does the synthetic part only, and says so.
COMPARE_DATA ?=
# More flags: --quick, --rows 1000000, --peers faiss, --texts 10000, ... (`compare search --help` lists them).
COMPARE_ARGS ?=

.PHONY: bench bench-criterion compare compare-pages peers

# Release builds do not look for the checkout's native parts by themselves.
compare bench bench-criterion: export MOPQDB_HOME := $(CURDIR)/.native

# The default encoder is made by the release build, as nothing else here needs another.
compare: native-onnxruntime native-model native-libtorch peers ## ourselves beside other databases and indexes; rewrites docs/comparison.md (COMPARE_DATA=FOLDER)
	cargo build --release --workspace --bins
	@test -f .native/bundles/default/manifest.json || target/release/mopqdb setup --dir .native
	target/release/compare all --python $(PEERS_PYTHON) --data "$(COMPARE_DATA)" --embeddings $(TABLE_OUT)/embeddings --table $(TABLE_OUT) $(COMPARE_ARGS)

compare-pages: ## write docs/comparison.md and docs/evidence.md again, from what was measured
	cargo run --release -q -p mopqdb-benches --bin compare -- pages --table $(TABLE_OUT)

bench: peers ## ourselves beside faiss-cpu, same codes, same run: target/bench/table.md and plot.svg
	cargo build --release --workspace --bin beside_faiss
	target/release/beside_faiss --python $(PEERS_PYTHON) --out target/bench $(BENCH_ARGS)

bench-criterion: ## the criterion benches
	cargo bench -p mopqdb-benches

# Wheels from PyPI, in an environment of their own; one that does not install is named, and the rest goes on.
peers:
	@benches/peers/fetch.sh $(PEERS)
