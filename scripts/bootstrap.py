"""Make `.venv` hold what a command needs, from the lock files. Quick, and offline, when it already
does.

Usage: python scripts/bootstrap.py runtime|test|dev

Needs only the standard library of Python 3.11, with venv and ensurepip.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "passback-stamp.json"
# there while packages are written: found at a start, it says that an installation was interrupted
UNFINISHED = VENV / "passback-unfinished"
# each holds all that the one before it holds
LEVELS = ("runtime", "test", "dev")
# a person's own settings of these would install to another place
FOREIGN = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")


def main() -> None:
    level = sys.argv[1]
    if _is_ready(level):
        return
    with Path(__file__).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two commands may be started at once
        if not _is_ready(level):
            _set_up(max(level, _stamped()["level"], key=LEVELS.index))


def _is_ready(level: str) -> bool:
    stamp = _stamped()
    return (
        not UNFINISHED.exists()
        and stamp["digest"] == _digest()
        and LEVELS.index(stamp["level"]) >= LEVELS.index(level)
        and PYTHON.exists()
    )


def _stamped() -> dict[str, str]:
    try:
        stamp = json.loads(STAMP.read_text())
        return {"level": stamp["level"], "digest": stamp["digest"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {"level": LEVELS[0], "digest": ""}


def _digest() -> str:
    """Return a digest of what the environment is made from; of the folder, too, as scripts
    name it.
    """
    digest = hashlib.sha256(os.fsencode(ROOT))
    names = ("pyproject.toml", *(f"requirements/{name}.txt" for name in ("build", *LEVELS)))
    for name in names:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def _set_up(level: str) -> None:
    print(f"Setting up {VENV} (a minute or two, only this once) ...", file=sys.stderr, flush=True)
    if UNFINISHED.exists() or not _works() or _moved():
        _make_venv()
    UNFINISHED.touch()
    try:
        _install(level)
    except subprocess.CalledProcessError:
        UNFINISHED.unlink()  # pip gave up in good order: the next start may go on from here
        raise
    STAMP.write_text(json.dumps({"level": level, "digest": _digest()}))
    UNFINISHED.unlink()


def _works() -> bool:
    if not PYTHON.exists():
        return False
    probe = [str(PYTHON), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(probe, check=False, stderr=subprocess.DEVNULL).returncode == 0


def _moved() -> bool:
    """Return True if the environment was made in another folder: its scripts start that Python."""
    scripts = [VENV / "bin" / name for name in ("pip", "passback")]
    heads = [script.read_bytes()[:1024] for script in scripts if script.is_file()]
    return any(os.fsencode(VENV) not in head for head in heads)


def _make_venv() -> None:
    if VENV.exists() and any(VENV.iterdir()) and not (VENV / "pyvenv.cfg").exists():
        sys.exit(f"{VENV} is not a Python environment; move it away and start again")
    # not .venv's own Python, which goes away here
    maker = getattr(sys, "_base_executable", sys.executable)
    shutil.rmtree(VENV, ignore_errors=True)
    _run(maker, "-m", "venv", str(VENV))


def _install(level: str) -> None:
    locks = [f"--requirement={ROOT}/requirements/{name}.txt" for name in ("build", level)]
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # tests compile to a folder of their own, and only what they import
    compiled = [] if level == "runtime" else ["--no-compile"]
    _run(*pip, *compiled, "--require-hashes", *locks)
    _run(*pip, "--no-deps", "--no-build-isolation", "--no-index", "--editable", str(ROOT))


def _run(*command: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"setting up {VENV} failed: {' '.join(map(str, error.cmd[1:4]))} ... (see above)")
    except KeyboardInterrupt:
        sys.exit("interrupted; the next start begins anew")
    except OSError as error:
        sys.exit(f"setting up {VENV} failed: {error}")
