#!/bin/sh
# Makes .venv hold what the locks say. Usage: packaging/setup.sh [test|bench], from the top of the repository.
#
# Finished stages leave a stamp named after a hash of all that went into them, so a second run does nothing and a
# changed lock is noticed. An environment that was left half-way is made anew: pip cannot tell a package that it was
# stopped in from a whole one. Needs Python >= 3.11 with venv, and a C++ compiler.
set -eu

extra=${1:-}
venv=.venv
stamps=$venv/.stamps
unset PYTHONPATH PYTHONHOME # another environment's packages must not pass for installed ones

say() { printf 'setup: %s\n' "$*"; }
die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# The first interpreter that can make the environment, in $python.
find_python() {
    without_venv=
    for python in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14}; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
        "$python" -c 'import venv, ensurepip' 2>/dev/null && return
        without_venv=$python
    done
    [ -z "$without_venv" ] || die "$without_venv cannot make virtual environments." \
        "On Debian or Ubuntu: sudo apt-get install python3-venv"
    die "no Python 3.11 or newer was found (tried: ${PYTHON:-python3, python3.13, .12, .11, .14})." \
        "On Debian 12, 13 or Ubuntu 24.04: sudo apt-get install python3 python3-venv." \
        "Or name one: make setup PYTHON=/path/to/python3"
}

make_venv() {
    if [ -e $venv ]; then
        [ -e $stamps/busy ] ||
            ! "$venv/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || return 0
        say "$venv is broken or was left half-made; making it anew"
        rm -rf .build/old-venv
        mv $venv .build/old-venv # at once, so that no half of it can be left
        rm -rf .build/old-venv
    fi
    find_python
    say "making $venv with $("$python" -V)"
    mkdir -p $stamps
    : >$stamps/busy
    "$python" -m venv $venv
}

pip() { $venv/bin/python -m pip --disable-pip-version-check --no-input "$@"; }
hash_of() { cat -- "$@" | sha256sum | cut -c 1-16; }

# stage NAME HASH: whether it is yet to be done; it then counts as begun.
stage() {
    [ ! -e "$stamps/$1-$2" ] || return 1
    mkdir -p $stamps
    : >$stamps/busy
}
done_with() {
    rm -f "$stamps/$1"-* $stamps/busy
    : >"$stamps/$1-$2"
}

mkdir -p .build
if command -v flock >/dev/null; then # two makes at a time: the second waits
    exec 9>.build/setup.lock
    flock -n 9 || { say "another set-up is running here; waiting for it" && flock 9; }
fi
if [ -t 1 ]; then quiet=; else quiet=-qq; fi # on a terminal pip's progress bars are welcome, in a log they are not

make_venv

# Interpreter and options too: another of either is another environment.
base=$({
    cat requirements.lock packaging/*.lock packaging/setup.sh packaging/llama_cpp/*.py packaging/llama_cpp/*.cmake pyproject.toml
    $venv/bin/python -V
    echo "${APPLIANCE_CUDA:-} ${CMAKE_ARGS:-} ${CC:-} ${CXX:-}"
} | sha256sum | cut -c 1-16)
if stage base "$base"; then
    pip install -qq --require-hashes -r packaging/pip.lock
    $venv/bin/python -B packaging/llama_cpp/build.py
    say "installing the locked dependencies"
    pip install $quiet --require-hashes -r requirements.lock
    pip install -qq --no-deps --build-constraint packaging/build.lock -e .
    done_with base "$base"
fi

if [ -n "$extra" ]; then
    lock=requirements-$extra.lock
    hash=$(hash_of "$lock")
    if stage "$extra" "$hash"; then
        say "installing what '$extra' needs besides"
        pip install $quiet --require-hashes -r "$lock"
        done_with "$extra" "$hash"
    fi
fi
