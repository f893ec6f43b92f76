#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Writes the tables of models in docs/pytorch-speed.md and the plot beside this file:
# about 25 minutes on two cores. Arguments go to compare.py. The second table,
# of a slow link, needs root. The libraries are those of the build tree, unless
# DDPHOOK_LIBRARY_DIR says otherwise.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
python=$("$root/tools/python-env.sh")
export DDPHOOK_LIBRARY_DIR=${DDPHOOK_LIBRARY_DIR:-$root/build/lib}
export PYTHONPATH=$root/tools/python/src${PYTHONPATH:+:$PYTHONPATH}

"$python" "$here/compare.py" "$@" --page="$root/docs/pytorch-speed.md" \
  --plot="$here/loss-and-bytes.svg"
if ((EUID == 0)); then
  "$python" "$here/compare.py" "$@" --page="$root/docs/pytorch-speed.md" --link=1gbit
else
  echo "no root, no network namespaces: the table of the link is as it was" >&2
fi
