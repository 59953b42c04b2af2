#!/bin/sh
# Installs the Debian packages of scripts/test_packages.txt that this machine lacks. Only root can.
set -eu
wanted=
while read -r provided packages; do
    case $provided in
    '' | '#'*) ;;
    /*) [ -e "$provided" ] || wanted="$wanted $packages" ;;
    *) command -v "$provided" >/dev/null 2>&1 || wanted="$wanted $packages" ;;
    esac
done <"$(dirname "$0")/test_packages.txt"
if [ -z "$wanted" ]; then exit 0; fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "not installed:$wanted; the tests that need them are skipped" >&2
    exit 0
fi
# shellcheck disable=SC2086 # a list of words on purpose
(apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq \
    --no-install-recommends $wanted) >/dev/null 2>&1 ||
    echo "cannot be installed:$wanted; the tests that need them are skipped" >&2
