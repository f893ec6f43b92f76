#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#     tools/install-packages.sh [--tests | PACKAGE…]
#
# Installs the missing packages of packages.txt, with --tests also those of
# test-packages.txt, or the named ones. If all are installed, it changes nothing, and
# needs neither root nor a network.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
wanted=$*
case ${1-} in
'') wanted=$(grep -hv '^#' packages.txt) ;;
--tests) wanted=$(grep -hv '^#' packages.txt test-packages.txt) ;;
-*)
  echo "error: expected --tests, packages or nothing, but got '$1'" >&2
  exit 2
  ;;
esac

missing=()
for package in $wanted; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done

if ((${#missing[@]} == 0)); then
  echo "all packages are installed"
  exit 0
fi
echo "missing packages: ${missing[*]}"
as_root=()
((EUID == 0)) || as_root=(sudo)
for program in apt-get "${as_root[@]}"; do
  if ! command -v "$program" >/dev/null; then
    echo "error: installing them needs $program; become root, or install them by other means" >&2
    exit 1
  fi
done
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
echo "+ apt-get update && apt-get install"
"${apt[@]}" update
if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; then
  echo "error: cannot install the packages; if LLVM 22 is not in this system's archive, add https://apt.llvm.org" >&2
  exit 1
fi
