# `make help` lists the targets. Everything that cargo does not download is kept in .native, pinned by version and sha256.
.DEFAULT_GOAL := help

# An empty environment (`env -i HOME PATH`) is enough; rustup's usual directory is on the path without its profile line.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help demo test test-python claim lint portable doc setup clean native-onnxruntime native-model native-libtorch default-bundle

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 22

demo: setup ## run the main use on real texts: insert, query, train, rebuild, compare
	@scripts/demo.sh

# Everything is built once, tests and programs with the same features, before the program makes the default encoder.
test: export MOPQDB_REQUIRE_NATIVE := 1
test: native-onnxruntime native-model native-libtorch ## run all tests of the workspace, including the trainer's
	cargo build --workspace --bins --tests --examples
	@test -f .native/bundles/default/manifest.json || target/debug/mopqdb setup --dir .native
	cargo test --workspace --doc --quiet
	@if cargo nextest --version >/dev/null 2>&1; then \
	  cargo nextest run --workspace; \
	else \
	  cargo test --workspace; \
	fi
	@python/tests/run.sh

test-python: native-libtorch default-bundle ## the Python package: its wheel, in a fresh environment, with its tests, types and examples
	cargo build --quiet --workspace --bin mopqdb --bin mopqdb-train
	@python/tests/run.sh

claim: native-libtorch native-model ## test on a small corpus that MoPQ finds more than OPQ, with an interval
	cargo test --workspace --test claim -- --nocapture

lint: ## check format, clippy, licences and advisories
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; \
	else echo "lint: cargo-deny is not installed (cargo install cargo-deny): licences and advisories were not checked" >&2; fi

portable: ## check that the libraries compile without code for x86-64, or for aarch64 if that target can be installed
	@scripts/portable.sh

doc: ## build the documentation in target/doc
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

include benches/bench.mk

clean: ## remove build results; downloads stay in .native
	cargo clean
	rm -rf demo.db demo.data

setup: default-bundle native-libtorch ## download the native parts and make the default encoder's bundle, once

# Python is needed only to download. If it is missing, an error says so.
define fetch
@command -v python3 >/dev/null 2>&1 || { echo "setup: error: no python3 on the PATH; install it (apt install python3 python3-pip) and run make again" >&2; exit 1; }
@python3 scripts/setup.py --dir .native $(1)
endef

native-onnxruntime:
	$(call fetch,onnxruntime)

native-model:
	$(call fetch,model)

# mopqdb writes it from the weights. Does nothing if it exists.
default-bundle: native-onnxruntime native-model
	@test -f .native/bundles/default/manifest.json || \
	  { cargo build --quiet --workspace --bin mopqdb && target/debug/mopqdb setup --dir .native; }

# A libtorch that the user names (for GPUs, for example) is used instead.
native-libtorch:
ifeq ($(LIBTORCH),)
	$(call fetch,libtorch)
else
	@echo "setup: using LIBTORCH=$(LIBTORCH)" >&2
endif

# The recall of every system on real pairs takes hours. Finished runs are not repeated. Rates, weights and temperatures are
# chosen by validation on debian, the smallest set, and used for the others too. Idle threads of OpenMP sleep.
TABLE_DATA ?= data
TABLE_OUT ?= target/table
TABLE := OMP_WAIT_POLICY=PASSIVE target/release/table --data "$(TABLE_DATA)" --out "$(TABLE_OUT)"
.PHONY: table
# A release build does not search the checkout for native parts.
table: export MOPQDB_HOME := $(CURDIR)/.native
table: setup ## measure every system of the paper on real pairs, with intervals (TABLE_DATA=FOLDER)
	@test -d "$(TABLE_DATA)" || { echo "table: error: no folder $(TABLE_DATA); name the data sets: make table TABLE_DATA=FOLDER" >&2; exit 1; }
	cargo build --release --workspace --bin table
	$(TABLE) --sets debian --tables systems,selection,sizes,dqn
	$(TABLE) --sets quora,acl --tables systems --chosen-on debian

.PHONY: torture fuzz asan emulated
# Seconds per fuzz target.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS = segment record log deletions bundle vectors lines kernels filter columns words operations

# Every test prints a line with the number of faults that it tried; the summary consists of these lines.
torture: ## run the long fault tests: 1,000 kills, every power cut, every failed call, every bit; then fuzz
	@mkdir -p target
	@cargo test --no-run --test faults --test interleavings
	@scripts/torture.sh target/torture.txt
	$(MAKE) fuzz
	@cat target/torture.txt

# Inputs that fuzzing finds are in fuzz/artifacts; copy them to fuzz/corpus, where cargo test replays them.
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

# The kernels, the memory map and everything around them, with every access checked. Leaks are not checked, because sled keeps
# its memory to the end of the process. `interleavings` is left out, because its scheduler runs all threads on one stack.
asan: ## run the engine's unit tests and the storage and fault tests under AddressSanitizer; needs nightly
	$(call nightly,asan)
	RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS=detect_leaks=0 \
	  cargo +nightly test --target x86_64-unknown-linux-gnu --target-dir target/asan -p mopqdb -p mopqdb-formats -p mopqdb-tests \
	  --lib --test storage --test faults --test replay
	@echo "asan: no error"

emulated: ## run the kernels' tests on an emulated CPU with AVX-512 VBMI, if this one has none; needs Debian, slow
	@tests/emulated/run.sh
