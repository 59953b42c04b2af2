#!/bin/sh
# prepare.sh VENV EXTRA
# Makes sure that this machine has what Sapwood needs, then installs the package with one
# of its extras, editable, into the virtual environment VENV.
# Missing Debian packages are installed when we are root; otherwise their names and the
# command to install them are printed and nothing is changed.
set -eu

venv=$1
extra=$2
shift 2
oldest="3, 11"

say() { echo "sapwood setup: $*" >&2; }

new_enough() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c "import sys; sys.exit(sys.version_info < ($oldest))"
}

# The interpreter: $PYTHON if given, else python3, else the newest that is new enough.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        if new_enough "$PYTHON"; then echo "$PYTHON"; return; fi
        say "PYTHON=$PYTHON is not a Python 3.11 or newer"
        exit 1
    fi
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if new_enough "$candidate"; then echo "$candidate"; return; fi
    done
}

# Names of the Debian packages that are missing, for the interpreter $1 (may be empty).
missing_packages() {
    if [ -z "$1" ]; then
        if command -v python3 >/dev/null 2>&1; then echo python3.11 python3.11-venv
        else echo python3 python3-venv; fi
    elif [ ! -x "$venv/bin/python" ] && ! "$1" -c 'import venv, ensurepip' 2>/dev/null; then
        "$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'
    fi
    command -v cc >/dev/null 2>&1 || echo gcc
    command -v c++ >/dev/null 2>&1 || echo g++
    echo '#include <math.h>' | cc -fsyntax-only -x c - 2>/dev/null || echo libc6-dev
}

install_packages() {
    if ! command -v apt-get >/dev/null 2>&1; then
        say "missing: $*; install them with this machine's package manager, then try again"
        exit 1
    elif [ "$(id -u)" -ne 0 ]; then
        say "missing: $*; install them, then try again:"
        say "    sudo apt-get install $*"
        exit 1
    fi
    say "installing with apt-get: $*"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

python=$(find_python)
packages=$(missing_packages "$python" | tr '\n' ' ')
if [ -n "$packages" ]; then
    # shellcheck disable=SC2086 # a list of words on purpose
    install_packages $packages
    python=$(find_python)
fi
if [ -z "$python" ]; then
    say "no Python 3.11 or newer found; say PYTHON=/path/to/python make …"
    exit 1
fi

# A broken or half-made environment is made again.
if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv"
fi
say "installing sapwood with its '$extra' packages into $venv (a minute at first) …"
# The packages of extras/ come along: no index has the versions that belong to this checkout.
for package in extras/*/pyproject.toml; do
    set -- "$@" --editable "${package%/pyproject.toml}"
done
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$extra]" "$@"
# As an installation would: what is compiled when it is first imported makes that first time slow.
"$venv/bin/python" -m compileall -q src extras

# Tests run agents of another architecture where that can be had: half a minute, no root.
if [ "$extra" = test ] || [ "$extra" = check ] || [ "$extra" = torture ]; then
    if [ "$(uname -m)" = x86_64 ] && command -v apt-get >/dev/null 2>&1; then
        say "getting an emulated aarch64 Python for tests into build/arm64 …"
        sh "$(dirname "$0")/prepare_arm64.sh" build/arm64 "$venv" \
            || say "cannot be had; the tests that need it will be skipped"
    fi
fi
