#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Exports the steps of both models, trains with PyTorch and natively on two ranks,
# and prints the table of README.md: some minutes. PLOT gets its plot.
#
#   docs/examples/torch-native/run.sh [STEPS [BUILD_DIR [PLOT.svg]]]
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
steps=${1:-40}
build=${2:-$root/build}
python=$("$root/tools/python-env.sh")
export DDPHOOK_LIBRARY_DIR=${DDPHOOK_LIBRARY_DIR:-$build/lib} OMP_NUM_THREADS=1
export PYTHONPATH=$root/tools/python/src${PYTHONPATH:+:$PYTHONPATH}
export TORCH_CPP_LOG_LEVEL=ERROR
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

torchrun() {
  "$python" -W ignore -m torch.distributed.run --nproc-per-node=2 --standalone \
    --local-addr=127.0.0.1 "$@"
}

echo "| model | hook | first loss | last losses, PyTorch | native | largest difference |"
echo "|---|---|---|---|---|---|"
for task in conv gpt; do
  mkdir "$work/$task"
  torchrun "$here/export.py" "$task" "$work/$task"
  torchrun "$here/eager.py" "$task" "$steps" "$work/$task"
  "$python" "$here/native.py" "$task" "$steps" "$work/$task" --bin="$build/bin"
done
if [[ -n ${3:-} ]]; then "$python" "$here/plot.py" "$work" "$3"; fi
