#!/usr/bin/env bash
# Prints the path of a Python interpreter that has the packages of
# test/requirements.txt, and creates it first if necessary.
#
# The virtual environment is in the user's cache directory. Its name contains a hash
# of the requirements file, so that all clones with the same pins use one (about
# 6.4 GB). DDPHOOK_TEST_PYTHON names another interpreter that has the packages
# already; nothing is installed then.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
requirements=$root/test/requirements.txt

if [[ -n ${DDPHOOK_TEST_PYTHON:-} ]]; then
  "$DDPHOOK_TEST_PYTHON" -c 'import torch, numpy, safetensors' >&2 || {
    echo "error: DDPHOOK_TEST_PYTHON=$DDPHOOK_TEST_PYTHON lacks the packages of test/requirements.txt" >&2
    exit 1
  }
  echo "$DDPHOOK_TEST_PYTHON"
  exit 0
fi

key=$(sha256sum "$requirements" | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ddphook
venv=$cache/python-$key
mkdir -p "$cache"

# Only one process installs at a time; one that was killed leaves no environment that
# looks complete.
exec 9>"$cache/python-$key.lock"
flock 9
if [[ ! -f $venv/.complete ]]; then
  echo "== installing the test Python (torch, jax and friends, minutes and 6.4 GB, once): $venv" >&2
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-input -r "$requirements" >&2
  touch "$venv/.complete"
fi
echo "$venv/bin/python"
