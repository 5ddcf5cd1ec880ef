"""Write `requirements/*.txt`: every package, with its version and hashes, for all platforms and
Pythons.

Usage: scripts/lock [--upgrade | --check]

`--check` works offline: each file carries a digest of what pyproject.toml asks for.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
# of pyproject.toml, that the image of the Dockerfile has
IMAGE_EXTRAS = ("chat", "mcp", "postgres")
# of pyproject.toml, that scripts/serve installs
SERVE_EXTRAS = ("chat",)
# the arguments of `uv pip compile` for each file; the first one sets the versions of the next four
LOCKS = {
    "dev": ("pyproject.toml", "--all-extras", "--group=dev"),
    "test": (
        "pyproject.toml",
        "--all-extras",
        "--group=test",
        "--constraints=requirements/dev.txt",
    ),
    "extras": ("pyproject.toml", "--all-extras", "--constraints=requirements/dev.txt"),
    "image": (
        "pyproject.toml",
        *(f"--extra={extra}" for extra in IMAGE_EXTRAS),
        "--constraints=requirements/dev.txt",
    ),
    "runtime": (
        "pyproject.toml",
        *(f"--extra={extra}" for extra in SERVE_EXTRAS),
        "--constraints=requirements/dev.txt",
    ),
    "node": ("--group=node",),
    "go": ("--group=go",),
    "redis-server": ("--group=redis-server", "--no-deps"),
    "newest-redis": ("--group=newest-redis", "--no-deps"),
    "openapi-client": ("--group=openapi-client",),
    "agentscope": ("--group=agentscope",),
    "blade-client": ("--group=blade-client",),
    "docs": ("--group=docs",),
    "plain-server": ("--group=plain-server", "--constraints=requirements/dev.txt"),
}


def main() -> int:
    text = (ROOT / "pyproject.toml").read_text()
    header = make_header(text)
    if "--check" in sys.argv:
        names = [*LOCKS, "build"]
        stale = [n for n in names if not (FOLDER / f"{n}.txt").read_text().startswith(header)]
        for name in stale:
            print(f"requirements/{name}.txt does not fit pyproject.toml: run scripts/lock")
        return 1 if stale else 0
    upgrade = ["--upgrade"] if "--upgrade" in sys.argv else []
    for name, arguments in LOCKS.items():
        compile_lock(name, (*arguments, *upgrade), header)
    with tempfile.NamedTemporaryFile("w", suffix=".in") as build:
        build.write("\n".join(tomllib.loads(text)["build-system"]["requires"]))
        build.flush()
        compile_lock("build", (build.name, "--constraints=requirements/dev.txt", *upgrade), header)
    return 0


def make_header(pyproject: str) -> str:
    """Return the first lines of a lock file: the digest of what pyproject.toml asks for."""
    tables = tomllib.loads(pyproject)
    asked = [tables["build-system"], tables["dependency-groups"]]
    keys = ("dependencies", "optional-dependencies", "requires-python")
    asked += [tables["project"][key] for key in keys]
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    return f"# Written by scripts/lock; do not edit.\n# from sha256:{digest}\n"


def compile_lock(name: str, arguments: tuple[str, ...], header: str) -> None:
    """Write a lock file; versions of the present one stay where they still fit."""
    path = FOLDER / f"{name}.txt"
    uv = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
    shape = ["--python-version=3.11", "--generate-hashes", "--no-emit-index-url"]
    plain = ["--no-header", "--no-annotate"]
    output = f"--output-file={path.relative_to(ROOT)}"
    subprocess.run([*uv, *shape, *plain, output, *arguments], check=True, cwd=ROOT)
    path.write_text(header + path.read_text())


if __name__ == "__main__":
    sys.exit(main())
