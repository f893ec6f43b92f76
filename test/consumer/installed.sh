#!/usr/bin/env bash
# Part of the ddphook project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Starts every tool of an install tree, wherever it lies, and lets it do its work:
#
#   test/consumer/installed.sh PREFIX
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
examples=$here/../../docs/examples
prefix=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset LD_LIBRARY_PATH
cd "$work"

fail() {
  echo "error: $1"
  exit 1
}

# expect FILE TEXT: the file has a line with the text.
expect() {
  grep -qF -e "$2" "$1" || {
    cat "$1"
    fail "expected '$2' in $1"
  }
}

empty=$(find "$prefix" -name CMakeFiles)
[[ -z $empty ]] || fail "expected no directories of CMake's, but got $empty"
for tool in ddphook-opt ddphook-cc ddphook-run ddphook-exec ddphook-trace \
  ddphook-report ddphook-lsp-server; do
  [[ -x $prefix/bin/$tool ]] || fail "$tool is not installed"
done
for tool in "$prefix"/bin/ddphook-*; do
  "$tool" --help </dev/null >help.txt || fail "$tool does not start"
  [[ -s $prefix/share/man/man1/${tool##*/}.1 ||
    -s $prefix/share/man/man1/${tool##*/}.1.gz ]] ||
    fail "${tool##*/} has no manual page"
done

step=$examples/linear/step.mlir
"$prefix/bin/ddphook-opt" "$step" --ddp-pipeline="hook=fp16" >opt.mlir
expect opt.mlir "call @ddphook_rt_all_reduce"
"$prefix/bin/ddphook-cc" "$step" -o linear.so --shared --ddp-pipeline="hook=fp16"
"$prefix/bin/ddphook-exec" linear.so --entry=step --ranks=2 --inputs=random:7 \
  --outputs='exec.{rank}.safetensors'
"$prefix/bin/ddphook-run" "$step" --entry=step --ranks=2 --inputs=random:7 \
  --ddp-pipeline="hook=fp16" --outputs='run.{rank}.safetensors'
cmp exec.0.safetensors run.0.safetensors
cmp exec.1.safetensors run.1.safetensors

python3 "$here/../Tools/Inputs/lsp_session.py" "$prefix/bin/ddphook-lsp-server" \
  "$here/../Tools/Inputs/step.mlir" >lsp.txt
expect lsp.txt "expected process group @nowhere to be declared"

/usr/lib/llvm-22/bin/mlir-opt "$step" \
  --load-dialect-plugin="$(echo "$prefix"/lib*/DDPHookPlugin.so)" \
  --pass-pipeline='builtin.module(ddp-pipeline{hook=bf16})' >plugin.mlir
expect plugin.mlir "call @ddphook_rt_all_reduce"

for file in LICENSE NOTICE CHANGELOG.md; do
  cmp "$here/../../$file" "$prefix/share/doc/ddphook/$file"
done
soname=$(readelf -d "$prefix"/lib*/libddphook_rt.so.*.*.* | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
[[ $soname =~ ^libddphook_rt\.so\.[0-9]+\.[0-9]+$ ]] ||
  fail "expected a versioned name of the runtime's library, but got '$soname'"
echo "every tool of $prefix works"
