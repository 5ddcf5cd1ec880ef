# Sourced by the commands beside it. Sets $root and offers `prepare LEVEL`, which makes .venv ready.
# POSIX sh; works from any folder, through symbolic links and with spaces in the path.

self=$(readlink -f -- "$0" 2>/dev/null) || self=$0
root=$(CDPATH='' cd -- "$(dirname -- "$self")/.." && pwd -P)
python="$root/.venv/bin/python"

# What a Python must have to make the environment: the version, and venv with its pip.
is_new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
can_make_venv='import ensurepip, venv'

fail() {
    printf '%s: %s\n' "$(basename -- "$0")" "$1" >&2
    exit 1
}

# Prints the path of a Python that can make the environment.
find_python() {
    without_venv=
    for name in ${PYTHON:+"$PYTHON"} "$python" \
        python3.13 python3.12 python3.11 python3.14 python3; do
        candidate=$(command -v "$name" 2>/dev/null) || continue
        "$candidate" -c "$is_new_enough" 2>/dev/null || continue
        if "$candidate" -c "$can_make_venv" 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
        without_venv=${without_venv:-$candidate}
    done
    if [ -n "$without_venv" ]; then
        version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        fail "$without_venv lacks the venv module. On Debian or Ubuntu: \
apt-get install python$version-venv"
    fi
    fail "Python 3.11 or newer is needed and none was found. On Debian or Ubuntu: \
apt-get install python3 python3-venv
(a Python elsewhere can be named: PYTHON=/path/to/python3 $0)"
}

# prepare runtime|test|dev
prepare() {
    maker=$(find_python) || exit 1
    "$maker" "$root/scripts/bootstrap.py" "$1" || exit 1
}
