#!/usr/bin/env bash
# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the root of a CUDA toolkit for building the CUDA backend:
#
#   1. DDPHOOK_CUDA_ROOT, when it is set;
#   2. a toolkit of this machine, 12.8 or later, that has NCCL beside it;
#   3. NVIDIA's PyPI packages (cuda-requirements.txt) in a virtual environment,
#      which is made first if need be.
#
# The virtual environment lives in the user's cache directory under a name that
# contains a hash of the requirements file, so that every clone with the same
# pins shares one (about 1.1 GB, half a minute).
# A GPU or a driver is not needed.
set -euo pipefail

directory=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
requirements=$directory/cuda-requirements.txt
least=12.8

# Whether the first version is at least the second one.
is_at_least() {
  [[ $(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]
}

# The root's version of nvcc, as 13.0; nothing when it is no toolkit.
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

# One maker at a time; a run that was killed leaves none behind that looks
# finished.
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
