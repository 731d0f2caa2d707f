# `make help` says what there is. Everything that cargo does not fetch is kept in .native, pinned by version and sha256.
.DEFAULT_GOAL := help

# An empty environment (`env -i HOME PATH`) is enough; rustup's usual place is found without its profile line.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help demo test claim lint portable doc setup clean native-onnxruntime native-model native-libtorch default-bundle

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 22

demo: setup ## the main job end to end on real texts: insert, query, train, rebuild, compare
	@scripts/demo.sh

# Everything is built once, tests and programs with the same features, before the default encoder is made with it.
test: export MOPQDB_REQUIRE_NATIVE := 1
test: native-onnxruntime native-model native-libtorch ## every test of the workspace, trainer included
	cargo build --workspace --bins --tests --examples
	@test -f .native/bundles/default/manifest.json || target/debug/mopqdb setup --dir .native
	cargo test --workspace --doc --quiet
	@if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run --workspace; \
	else \
	  cargo test --workspace; \
	fi

claim: native-libtorch native-model ## the claim that MoPQ finds more than OPQ, on a small corpus, with its interval
	cargo test --workspace --test claim -- --nocapture

lint: ## format, clippy, licences and advisories
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; \
	else echo "lint: cargo-deny is not installed (cargo install cargo-deny): licences and advisories were not checked" >&2; fi

portable: ## the libraries without code for x86-64, or for aarch64 where that target can be installed
	@scripts/portable.sh

doc: ## the documentation, in target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

include benches/bench.mk

clean: ## remove what was built; what was fetched stays in .native
	cargo clean
	rm -rf demo.db demo.data

setup: default-bundle native-libtorch ## fetch the native parts and make the default encoder's bundle, once

# Python is needed to fetch, never to run: say so in words.
define fetch
@command -v python3 >/dev/null 2>&1 || { echo "setup: error: no python3 on the PATH; install it (apt install python3 python3-pip) and run make again" >&2; exit 1; }
@python3 scripts/setup.py --dir .native $(1)
endef

native-onnxruntime:
	$(call fetch,onnxruntime)

native-model:
	$(call fetch,model)

# Written from the weights by our own program; nothing is done if it is there.
default-bundle: native-onnxruntime native-model
	@test -f .native/bundles/default/manifest.json || \
	  { cargo build --quiet --workspace --bin mopqdb && target/debug/mopqdb setup --dir .native; }

# Somebody who names a libtorch of their own (one with GPUs, say) keeps it.
native-libtorch:
ifeq ($(LIBTORCH),)
	$(call fetch,libtorch)
else
	@echo "setup: using LIBTORCH=$(LIBTORCH)" >&2
endif

# The recall of every system on real pairs: hours. What was done is not done again. Rates, weights and temperatures are
# chosen by validation on debian, the smallest set, and taken from there by the others. Idle threads of OpenMP sleep.
TABLE_DATA ?= data
TABLE_OUT ?= target/table
TABLE := OMP_WAIT_POLICY=PASSIVE target/release/table --data "$(TABLE_DATA)" --out "$(TABLE_OUT)"
.PHONY: table
# A release build does not look for the checkout's native parts by itself.
table: export MOPQDB_HOME := $(CURDIR)/.native
table: setup ## every system of the paper on real pairs, with intervals (TABLE_DATA=FOLDER)
	@test -d "$(TABLE_DATA)" || { echo "table: error: no folder $(TABLE_DATA); name the data sets: make table TABLE_DATA=FOLDER" >&2; exit 1; }
	cargo build --release --workspace --bin table
	$(TABLE) --sets debian --tables systems,selection,sizes,dqn
	$(TABLE) --sets quora,acl --tables systems --chosen-on debian

.PHONY: torture fuzz asan emulated
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS = segment record log deletions bundle vectors lines kernels filter columns operations

# Every test says on a line how many faults it tried; the summary is those lines.
torture: ## the long fault tests: 1,000 kills, every power cut, every failed call, every bit; then fuzz
	@mkdir -p target
	@cargo test --no-run --test faults --test interleavings
	@scripts/torture.sh target/torture.txt
	$(MAKE) fuzz
	@cat target/torture.txt

# What fuzzing finds is kept in fuzz/artifacts; copy it to fuzz/corpus, where cargo test replays it.
define nightly
@rustup toolchain list 2>/dev/null | grep -q '^nightly' || { echo "$(1): error: no nightly toolchain; rustup toolchain install nightly" >&2; exit 1; }
endef

fuzz: ## run each fuzz target for FUZZ_SECONDS (60); needs nightly and cargo-fuzz
	$(call nightly,fuzz)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "fuzz: error: no cargo-fuzz; cargo install cargo-fuzz" >&2; exit 1; }
	@for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/found/$$target; \
		cargo +nightly fuzz run $$target fuzz/found/$$target fuzz/corpus/$$target -- -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=4096 || exit 1; \
	done
	@echo "fuzz: $(FUZZ_SECONDS) s of each of: $(FUZZ_TARGETS); nothing found"

# The kernels, the memory map and everything around them, with every access checked. Leaks are not looked for: sled keeps
# what it has to the end of the process. Threads that a scheduler runs on one stack are left out.
asan: ## the engine's unit tests and the storage and fault tests under AddressSanitizer; needs nightly
	$(call nightly,asan)
	RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=0 \
	  cargo +nightly test --target x86_64-unknown-linux-gnu --target-dir target/asan -p mopqdb -p mopqdb-formats -p mopqdb-tests \
	  --lib --test storage --test faults --test replay
	@echo "asan: no error"

emulated: ## the kernels' tests on an emulated CPU with AVX-512 VBMI, where there is none; Debian, slow
	@tests/emulated/run.sh
