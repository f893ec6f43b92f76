#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the root of a CUDA toolkit for building the CUDA backend:
#
#   1. DDPHOOK_CUDA_ROOT, if it is set;
#   2. this machine's toolkit, if it is 12.8 or later and NCCL is installed;
#   3. NVIDIA's PyPI packages (cuda-requirements.txt) in a virtual environment,
#      which is created if necessary (1.1 GB, half a minute; venv.sh).
#
# No GPU or driver is needed.
set -euo pipefail

directory=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
least=12.8

# Prints the root's version of nvcc, such as 13.0, or nothing.
version_of() {
  [[ -x $1/bin/nvcc && -f $1/include/cublas_v2.h ]] || return 0
  "$1/bin/nvcc" --version 2>/dev/null |
    sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p'
}

has_nccl() {
  [[ -f $1/include/nccl.h || -f /usr/include/nccl.h ||
    -f /usr/local/include/nccl.h ]]
}

if [[ -n ${DDPHOOK_CUDA_ROOT:-} ]]; then
  if [[ -z $(version_of "$DDPHOOK_CUDA_ROOT") ]]; then
    echo "error: expected a CUDA toolkit in DDPHOOK_CUDA_ROOT=$DDPHOOK_CUDA_ROOT, but it lacks bin/nvcc or include/cublas_v2.h" >&2
    exit 1
  fi
  echo "$DDPHOOK_CUDA_ROOT"
  exit 0
fi

candidates=()
if nvcc=$(command -v nvcc); then
  candidates+=("$(dirname "$(dirname "$(readlink -f "$nvcc")")")")
fi
candidates+=(/usr/local/cuda)
for root in "${candidates[@]}"; do
  version=$(version_of "$root")
  if [[ -n $version ]] && has_nccl "$root" &&
    printf '%s\n' "$least" "$version" | sort -VC; then
    echo "$root"
    exit 0
  fi
done

venv=$("$directory/venv.sh" cuda "$directory/cuda-requirements.txt" \
  "CUDA and NCCL (no toolkit on this machine; about 30 s and 1.1 GB)")
echo "$venv"/lib/python3*/site-packages/nvidia/cu13
