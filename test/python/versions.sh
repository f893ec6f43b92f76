#!/usr/bin/env bash
# versions.sh [RELEASE:PYTHON...]: runs the package's core tests with other releases of
# PyTorch, by default the oldest, one in the middle and the newest, each on another Python.
# A Python that this machine does not have is replaced by python3, with a note. The oracle
# of each run is the hooks of the same PyTorch. Ends in "N passed, N failed, N skipped".
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
(($#)) || set -- 2.8.0:3.10 2.11.0:3.12 2.15.0:3.13
core=(test_private.py 'test_hooks.py::test_every_exact_hook[2]' test_states.py
  'test_requests.py::test_an_overflow_in_a_compiled_step'
  'test_requests.py::test_a_ddp_model_whose_backward_is_outside'
  'test_compile.py::test_graphs_reduce_as_pytorchs_hooks[2]' test_export.py
  test_pytorchs_tests.py)
passed=0 failed=0 skipped=0

find_python() { # version
  local each
  for each in "python$1" "$HOME/.pyenv/versions/$1".*/bin/python; do
    "$each" -c 'import sys; print(sys.executable)' 2>/dev/null && return
  done
  echo "note: this machine has no Python $1; python3 replaces it" >&2
  command -v python3
}

for each; do
  python=$(tools/torch-env.sh "${each%:*}" "$(find_python "${each#*:}")" | tail -1)
  "$python" -c 'import sys, torch; print("==", torch.__version__, "Python", sys.version.split()[0])'
  log=$(nice "$python" -m pytest -q -rfs -p no:cacheprovider \
    -o tmp_path_retention_policy=failed "${core[@]/#/test/python/}" 2>&1)
  status=$?
  if ((status)); then echo "$log"; else tail -3 <<<"$log"; fi
  number() { tail -1 <<<"$log" | grep -oE "[0-9]+ $1" | grep -oE '[0-9]+' || echo 0; }
  bad=$(($(number failed) + $(number 'errors?')))
  ((status && !bad)) && bad=1
  passed=$((passed + $(number passed))) failed=$((failed + bad)) skipped=$((skipped + $(number skipped)))
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
