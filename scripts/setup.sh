#!/usr/bin/env bash
# Sets up everything that `make run` (argument: run) or `make test` (argument: test) needs, and says what it does first.
# System packages are installed as root, or after asking; otherwise the script prints the command to type and stops.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:?usage: scripts/setup.sh run|test}
python=${PYTHON:-python3}
venv=.venv

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

need=()
command -v bwrap >/dev/null || need+=(bubblewrap)
command -v git >/dev/null || need+=(git)
command -v "$python" >/dev/null || need+=(python3 python3-venv)
if command -v "$python" >/dev/null; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$python is $("$python" --version 2>&1); Python 3.11 or newer is needed. Next: make $purpose PYTHON=python3.11"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || need+=("python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv")
fi
if [ "$purpose" = test ]; then
    command -v cc >/dev/null || need+=(gcc libc6-dev)
fi

if [ ${#need[@]} -gt 0 ]; then
    install="apt-get install -y --no-install-recommends ${need[*]}"
    echo "setup: system packages to install: ${need[*]} (a few MB each)"
    command -v apt-get >/dev/null || fail "there is no apt-get here; install these yourself: ${need[*]}"
    if [ "$(id -u)" = 0 ]; then
        apt-get update -q && DEBIAN_FRONTEND=noninteractive $install
    elif [ -t 0 ] && command -v sudo >/dev/null; then
        read -r -p "setup: run 'sudo $install'? [y/N] " answer
        case "$answer" in [yY]*) sudo apt-get update -q && sudo $install ;; *) fail "next: sudo $install" ;; esac
    else
        fail "next: sudo $install"
    fi
fi

extras=local,report
[ "$purpose" = test ] && extras=local,report,dev
echo "setup: Python packages go into $venv (about 1.1 GB with PyTorch for the CPU; the versions are pinned in constraints.txt)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"

# PyPI's own torch brings gigabytes of CUDA on x86-64, so the build for the CPU is asked for by name: from wherever pip
# looks first, then from PyTorch's own index. Elsewhere (ARM, macOS) PyPI's build is for the CPU already.
if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    torch=$(grep -E '^torch==' constraints.txt | sed 's/+cpu//')
    echo "setup: installing $torch for the CPU (about 200 MB)"
    if [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ]; then
        "$venv/bin/pip" install -q "$torch+cpu" 2>/dev/null ||
            "$venv/bin/pip" install -q "$torch" --index-url https://download.pytorch.org/whl/cpu
    else
        "$venv/bin/pip" install -q "$torch"
    fi
fi
"$venv/bin/pip" install -q -c <(grep -v '^torch==' constraints.txt) -e ".[$extras]"
touch "$venv/.$purpose"
[ "$purpose" = test ] && touch "$venv/.run"
echo "setup: done"
