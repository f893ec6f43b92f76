#!/usr/bin/env bash
# Prints the path of a Python interpreter that has the packages of
# test/requirements.txt, and creates it first if necessary (about 6.4 GB; venv.sh).
#
# DDPHOOK_TEST_PYTHON names another interpreter that has the packages
# already; nothing is installed then.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [[ -n ${DDPHOOK_TEST_PYTHON:-} ]]; then
  "$DDPHOOK_TEST_PYTHON" -c 'import torch, numpy, safetensors' >&2 || {
    echo "error: DDPHOOK_TEST_PYTHON=$DDPHOOK_TEST_PYTHON lacks the packages of test/requirements.txt" >&2
    exit 1
  }
  echo "$DDPHOOK_TEST_PYTHON"
  exit 0
fi

venv=$("$root/tools/venv.sh" python "$root/test/requirements.txt" \
  "the test Python (torch, jax and friends, minutes and 6.4 GB)")
echo "$venv/bin/python"
