#!/bin/sh
# Installs the peers from PyPI into a virtual environment: fetch.sh FOLDER. Does nothing if requirements.txt is unchanged.
set -u
here=$(dirname "$0")
stamp="$1/fetched"
cmp -s "$here/requirements.txt" "$stamp" && exit 0
command -v python3 >/dev/null 2>&1 || { echo "compare: error: no python3 on the PATH; install it (apt install python3 python3-venv)" >&2; exit 1; }
python3 -m venv "$1/venv" || { echo "compare: error: python3 -m venv failed; apt install python3-venv" >&2; exit 1; }
sed 's/#.*//' "$here/requirements.txt" | while read -r package; do
  [ -n "$package" ] || continue
  echo "compare: installing $package" >&2
  # Building from source may need compilers and an hour, so wheels are preferred.
  "$1/venv/bin/pip" install --quiet --disable-pip-version-check --prefer-binary "$package" >&2 ||
    echo "compare: $package could not be installed; its peer will be listed as missing" >&2
done
cp "$here/requirements.txt" "$stamp"
