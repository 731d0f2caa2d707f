#!/usr/bin/env bash
# Builds the wheel, installs it in a fresh environment, and tests it there: pytest, doctests, types, stubs.
# The wheel is of the dev profile, so that it shares what `cargo build` has compiled. Only the engine is compiled again, without
# what its own tests need, and without optimisation, which takes a fifth of the time.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$(cd "$here/../.." && pwd)"
work="$root/target/python"
python="${PYTHON:-python3}"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
  { echo "test-python: error: $python is older than 3.10; name a newer one: make test-python PYTHON=python3.12" >&2; exit 1; }

step() { printf '\n-- %s (%ss so far)\n' "$*" "$SECONDS"; }

step "a fresh environment"
rm -rf "$work/venv" "$work/wheels"
"$python" -m venv "$work/venv"
bin="$work/venv/bin"
"$bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
step "the wheel"
(cd "$root/python" && "$bin/maturin" build --quiet --profile dev --config profile.dev.package.mopqdb.opt-level=0 --out "$work/wheels" --interpreter "$bin/python")
"$bin/pip" install --quiet --disable-pip-version-check "$work"/wheels/*.whl
# Outside of the source tree, so that it is the installed package that is imported.
cd "$work"
step "tests"
"$bin/python" -m pytest --quiet -p no:cacheprovider --rootdir "$here" "$here" "$@"
step "types"
"$bin/mypy" --strict --cache-dir "$work/mypy" -p mopqdb
"$bin/pyright" --pythonpath "$bin/python" --project "$here/pyrightconfig.json"
"$bin/python" -m mypy.stubtest mopqdb._native --ignore-disjoint-bases
