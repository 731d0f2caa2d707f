# Side by side with peers, on this machine, now. Included by the Makefile.
PEERS := target/peers/venv

.PHONY: bench bench-criterion

bench: $(PEERS)/bin/python ## ourselves beside faiss-cpu, same codes, same run: target/bench/table.md and plot.svg
	cargo run --release -p mopqdb-benches --bin compare -- --python $(PEERS)/bin/python --out target/bench $(BENCH_ARGS)

bench-criterion: ## the criterion benches
	cargo bench -p mopqdb-benches

$(PEERS)/bin/python:
	python3 -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet faiss-cpu==1.15.1 numpy
