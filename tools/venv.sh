#!/usr/bin/env bash
# venv.sh KIND REQUIREMENTS TEXT: prints the path of a virtual environment with the
# packages of the file REQUIREMENTS, and creates it first if necessary.
#
# It is in the user's cache directory. Its name contains KIND and a hash of the file, so
# that all clones with the same pins use one.
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/ddphook
venv=$cache/$1-$(sha256sum "$2" | cut -c1-16)
mkdir -p "$cache"

# Only one process installs at a time; one that was killed leaves no environment that
# looks complete.
exec 9>"$venv.lock"
flock 9
if [[ ! -f $venv/.complete ]]; then
  echo "== installing $3, once: $venv" >&2
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv" >&2
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --no-input -r "$2" >&2
  touch "$venv/.complete"
fi
echo "$venv"
