#!/usr/bin/env bash
# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the root of a CUDA toolkit for building the CUDA backend:
#
#   1. DDPHOOK_CUDA_ROOT, if it is set;
#   2. this machine's toolkit, if it is 12.8 or later and NCCL is installed;
#   3. NVIDIA's PyPI packages (cuda-requirements.txt) in a virtual environment,
#      which is created if necessary.
#
# The virtual environment is in the user's cache directory. Its name contains a hash
# of the requirements file, so that all clones with the same pins use one (about
# 1.1 GB, half a minute).
# No GPU or driver is needed.
set -euo pipefail

directory=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$directory/cuda-requirements.txt
least=12.8

# Succeeds if the first version is at least the second one.
is_at_least() {
  [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]
}

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
  if [[ -n $version ]] && is_at_least "$version" "$least" && has_nccl "$root"; then
    echo "$root"
    exit 0
  fi
done

key=$(sha256sum "$requirements" | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ddphook
venv=$cache/cuda-$key
mkdir -p "$cache"

# Only one process installs at a time; one that was killed leaves no environment
# that looks complete.
exec 9>"$cache/cuda-$key.lock"
flock 9
if [[ ! -f $venv/.complete ]]; then
  echo "== installing CUDA and NCCL (no toolkit on this machine; about 30 s and 1.1 GB, once): $venv" >&2
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-input -r "$requirements" >&2
  touch "$venv/.complete"
fi
echo "$venv"/lib/python3*/site-packages/nvidia/cu13
