#!/usr/bin/env bash
# Checks that the libraries compile where no code for x86-64 exists. Where rustup can install the target, this is
# `cargo check` for aarch64 Linux. Elsewhere a copy of the sources is checked in which no `cfg` asks for x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
packages=(-p mopqdb -p mopqdb-formats)

if rustup target add "$target" 2>/dev/null && command -v aarch64-linux-gnu-gcc >/dev/null; then
  cargo check "${packages[@]}" --target "$target"
  exit
fi
echo "portable: no $target with a C compiler here; checking the sources without code for x86-64" >&2
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | tar --null -cf - --ignore-failed-read -T - | tar -xf - -C "$copy"
# riscv64 is a name that the compiler knows and that no code of ours asks for.
grep -rlZ 'target_arch = "x86_64"' "$copy/engine/src" | xargs -0 sed -i 's/target_arch = "x86_64"/target_arch = "riscv64"/g'
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
cd "$copy"
# With the features that `cargo clippy --workspace` has, so that dependencies are not checked again.
CARGO_TARGET_DIR=$target_dir cargo check --workspace --lib --exclude mopqdb-trainer --quiet --locked 2>&1 | tee "$copy/said"
if grep -q '^warning' "$copy/said"; then
  echo "portable: error: warnings, which would be errors on that architecture" >&2
  exit 1
fi
