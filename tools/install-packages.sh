#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#     tools/install-packages.sh [--tests]
#
# Installs the missing packages of packages.txt, with --tests also those of
# test-packages.txt. If all are installed, it changes nothing, and needs neither root
# nor a network.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
case ${1-} in
'') lists=(packages.txt) ;;
--tests) lists=(packages.txt test-packages.txt) ;;
*)
  echo "error: expected --tests or nothing, but got '$1'" >&2
  exit 2
  ;;
esac

missing=()
while read -r package; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done < <(grep -hv -e '^#' -e '^$' "${lists[@]}")

if ((${#missing[@]} == 0)); then
  echo "all packages of ${lists[*]/#/tools/} are installed"
  exit 0
fi
echo "missing packages: ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "error: this machine has no apt-get; install what ${lists[*]/#/tools/} list by other means" >&2
  exit 1
fi
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "error: installing packages needs root or sudo" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300)
echo "+ apt-get update && apt-get install"
"${apt[@]}" update
if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}"; then
  echo "error: cannot install the packages; if LLVM 22 is not in this system's archive, add https://apt.llvm.org" >&2
  exit 1
fi
