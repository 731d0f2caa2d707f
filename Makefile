# `make help` says what there is. Everything that cargo does not fetch is kept in .native, pinned by version and sha256.
.DEFAULT_GOAL := help

# An empty environment (`env -i HOME PATH`) is enough; rustup's usual place is found without its profile line.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help setup native-onnxruntime native-model native-libtorch default-bundle

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:[^#]*## /\t/' | expand -t 22

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
	@cargo run --quiet -p mopqdb-cli -- setup --dir .native

# Somebody who names a libtorch of their own (one with GPUs, say) keeps it.
native-libtorch:
ifeq ($(LIBTORCH),)
	$(call fetch,libtorch)
else
	@echo "setup: using LIBTORCH=$(LIBTORCH)" >&2
endif
