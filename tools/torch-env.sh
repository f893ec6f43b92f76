#!/usr/bin/env bash
# torch-env.sh RELEASE PYTHON: prints the path of a Python interpreter with this release of
# PyTorch for CPUs, for test/python/versions.sh, and creates it first if necessary (2 GB).
#
# PyPI's PyTorch needs several gigabytes of CUDA libraries, which are replaced by empty
# ones whose functions all return cudaErrorNoDevice.
set -euo pipefail

venv=${XDG_CACHE_HOME:-$HOME/.cache}/ddphook/torch-$1-$(basename "$2")
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
if [[ ! -f $venv/.complete ]]; then
  rm -rf "$venv"
  "$2" -m venv "$venv"
  install=("$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check)
  "${install[@]}" --no-deps "torch==$1"
  "${install[@]}" sympy networkx jinja2 fsspec filelock typing-extensions setuptools numpy \
    pytest safetensors expecttest 2>/dev/null
  cd "$venv"/lib/python3*/site-packages/torch/lib
  code=$(mktemp --suffix=.s)
  names() { nm -D "--$1-only" ./*.so | sed -nE 's/^[0-9a-f ]* [A-Za-z] ([^@]+).*/\1/p' | sort -u; }
  comm -23 <(names undefined) <(names defined) | grep -E '^(__)?(cu|nccl|nv)' |
    sed 's/.*/.globl &\n.type &,@function\n&:/' >"$code"
  # shellcheck disable=SC2016 # It is assembly.
  printf 'mov $100, %%eax\nret\n.section .note.GNU-stack\n' >>"$code"
  cc -shared -nostdlib -Wl,-soname,libwithout_cuda.so -o libwithout_cuda.so "$code"
  rm "$code"
  needed=$(readelf -dW ./*.so | sed -nE 's/.*\(NEEDED\).*\[(lib(cu|nccl|nv).*)\]/\1/p' | sort -u)
  for each in $needed; do
    [[ -e $each ]] || cc -shared -nostdlib -Wl,-soname,"$each" -Wl,--no-as-needed \
      -o "$each" ./libwithout_cuda.so
  done
  touch "$venv/.complete"
fi >&2
echo "$venv/bin/python"
