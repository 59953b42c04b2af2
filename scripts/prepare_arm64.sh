#!/bin/sh
# prepare_arm64.sh FOLDER VENV
# Puts an emulator, an aarch64 Python and the packages that agents need into FOLDER, so that
# tests can run agents of another architecture. Needs Debian or a system derived from it, but
# no root: nothing is installed, and neither package lists nor keys of this machine change.
#   FOLDER/qemu        the emulator
#   FOLDER/root        what it takes for the root of the file system: C library, Python
#   FOLDER/site        Python packages
#   FOLDER/packages    those that a node gets from its head
#   FOLDER/ready       written last
set -eu

mkdir -p "$1"
folder=$(cd "$1" && pwd)
venv=$(cd "$2" && pwd)
[ ! -e "$folder/ready" ] || [ ! -e "$folder/packages" ] || exit 0

# fetch ARCHITECTURE PACKAGE…: download packages and what they depend on, into downloads/.
fetch() {
    architecture=$1
    shift
    state="$folder/apt-$architecture"
    mkdir -p "$state/lists/partial" "$folder/downloads-$architecture/partial"
    : > "$state/status"
    options="-qq -o APT::Architecture=$architecture -o APT::Architectures=$architecture
        -o Dir::State=$state -o Dir::State::status=$state/status -o Dir::Cache=$state
        -o Dir::Cache::archives=$folder/downloads-$architecture -o Debug::NoLocking=1
        -o APT::Sandbox::User="
    # shellcheck disable=SC2086 # a list of words on purpose
    apt-get $options update
    # shellcheck disable=SC2086 # as above
    apt-get $options -y --no-install-recommends --download-only install "$@" >/dev/null
}

# unpack ARCHITECTURE TARGET: unpack what was downloaded.
unpack() {
    mkdir -p "$2"
    for package in "$folder/downloads-$1"/*.deb; do dpkg -x "$package" "$2"; done
    rm -r "$folder/downloads-$1" "$folder/apt-$1"
}

if [ ! -e "$folder/ready" ]; then
    if command -v qemu-aarch64-static >/dev/null 2>&1; then
        ln -sf "$(command -v qemu-aarch64-static)" "$folder/qemu"
    else
        fetch "$(dpkg --print-architecture)" qemu-user-static
        unpack "$(dpkg --print-architecture)" "$folder/host"
        ln -sf host/usr/bin/qemu-aarch64-static "$folder/qemu"
    fi

    fetch arm64 python3-minimal libpython3-stdlib libstdc++6
    unpack arm64 "$folder/root"
fi

version=$(basename "$(readlink "$folder/root/usr/bin/python3")")
abi=cp$(echo "${version#python}" | tr -d .)
platforms=""
for glibc in 17 26 27 28 31 34 35; do platforms="$platforms --platform manylinux_2_${glibc}_aarch64"; done
# get TARGET PACKAGE…: install packages for that Python.
get() {
    target=$1
    shift
    # shellcheck disable=SC2086 # a list of words on purpose
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --target "$target" \
        --only-binary=:all: --platform manylinux2014_aarch64 $platforms \
        --python-version "${version#python}" --implementation cp \
        --abi "$abi" --abi abi3 --abi none "$@"
}

[ -e "$folder/ready" ] || get "$folder/site" msgspec numpy uvloop cloudpickle
rm -rf "$folder/packages" "$folder/packages.new"
get "$folder/packages.new" msgspec numpy cloudpickle structlog psutil cryptography cffi
mv "$folder/packages.new" "$folder/packages"
touch "$folder/ready"
