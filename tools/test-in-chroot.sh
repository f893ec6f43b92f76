#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes a bare Debian in a chroot, clones the last commit into it, and runs a
# command there: by default both commands of README.md.
#
#     tools/test-in-chroot.sh [OPTION…] SUITE [COMMAND…]
#
# SUITE is a release of Debian, bookworm or trixie. The chroot only contains the
# packages that debootstrap installs as "minbase", and this machine's apt settings,
# proxies and certificates: no compiler, no Python, no home directory. It is removed
# at the end.
#
# --root=DIR       creates the chroot in DIR, and keeps it. If DIR has one already, the
#                  command continues in it, with the last commit and existing builds.
# --mount=FROM:TO  makes the directory FROM visible in the chroot as TO, such as
#                  --mount=$HOME/.cache/ccache:/root/.cache/ccache to save time.
#                  Without this option, the chroot uses none of this machine's caches.
#
# Needs root and the package debootstrap. The exit status is the command's.
set -euo pipefail

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mirror=http://deb.debian.org
clone=root/ddphook

die() {
  echo "error: $1" >&2
  exit 2
}

# Runs in separate mount and PID namespaces: mounts and processes from here end with
# this process.
if [[ ${1:-} == --inside ]]; then
  root=$2
  shift 2
  mount --make-rprivate /
  # A mount point, so that processes in the chroot can make such namespaces, too.
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
  ln -sfn pts/ptmx "$root/dev/ptmx"
  while [[ $1 != -- ]]; do
    mkdir -p "$root/${1#*:}"
    mount --bind "${1%%:*}" "$root/${1#*:}"
    shift
  done
  shift
  environment=(HOME=/root LANG=C.UTF-8 TERM=dumb
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
  for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_DEFAULT_TIMEOUT; do
    if [[ -n ${!name-} ]]; then environment+=("$name=${!name}"); fi
  done
  if [[ -f $root/etc/ssl/machine.crt ]]; then
    environment+=({SSL_CERT_FILE,PIP_CERT,GIT_SSL_CAINFO}=/etc/ssl/machine.crt)
  fi
  # shellcheck disable=SC2016
  exec env -i "${environment[@]}" chroot "$root" \
    bash -c 'cd "$0" && exec "$@"' "/$clone" "$@"
fi

root='' mounts=()
while [[ ${1:-} == --* ]]; do
  case $1 in
  --root=?*) root=${1#*=} ;;
  --mount=/*:/*) mounts+=("${1#*=}") ;;
  --help)
    sed -n '/^# Makes/,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *) die "expected --root=DIR or --mount=FROM:TO, but got '$1'" ;;
  esac
  shift
done
(($# > 0)) || die 'expected a release of Debian, such as bookworm or trixie'
suite=$1
shift
(($# > 0)) || set -- bash -c 'tools/quickstart.sh && tools/test.sh'
((EUID == 0)) || die 'expected to run as root'
command -v debootstrap >/dev/null || die 'expected the package debootstrap'
for directory in "${mounts[@]%%:*}"; do
  [[ -d $directory ]] || die "expected a directory, but got '$directory'"
done

if [[ -z $root ]]; then
  root=$(mktemp -d "${TMPDIR:-/tmp}/ddphook-$suite.XXXXXX")
  trap 'rm -rf --one-file-system "$root"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
fi

if [[ ! -f $root/.complete ]]; then
  mkdir -p "$root"
  [[ -z $(ls -A "$root") ]] || die "expected no files in $root, or a chroot that is complete"
  echo "== making a bare Debian $suite in $root"
  debootstrap --variant=minbase "$suite" "$root" "$mirror/debian" >"$root.log" 2>&1 ||
    { cat "$root.log" >&2; rm -f "$root.log"; die 'debootstrap failed'; }
  rm -f "$root.log"
  cat >"$root/etc/apt/sources.list" <<EOF
deb $mirror/debian $suite main
deb $mirror/debian $suite-updates main
deb $mirror/debian-security $suite-security main
EOF
  # Use the apt settings of this machine.
  apt-config dump Acquire >"$root/etc/apt/apt.conf.d/99machine"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  hostname >"$root/etc/hostname"
  echo "127.0.0.1 localhost $(hostname)" >"$root/etc/hosts"
  # Certificates that this machine did not get from Debian.
  if [[ -n ${SSL_CERT_FILE-} ]]; then
    install -D -m 644 "$SSL_CERT_FILE" "$root/etc/ssl/machine.crt"
  fi
  touch "$root/.complete"
fi

if [[ -d $root/$clone ]]; then
  git -C "$root/$clone" pull --quiet --ff-only "$source" HEAD
else
  git clone --quiet --no-local "$source" "$root/$clone"
fi
if [[ -n $(git -C "$source" status --porcelain) ]]; then
  echo '== changes that are not committed are not in the clone'
fi
echo "== $suite, commit $(git -C "$root/$clone" rev-parse --short HEAD): $*"
status=0
unshare --mount --pid --fork --kill-child "${BASH_SOURCE[0]}" --inside "$root" \
  "${mounts[@]}" -- "$@" || status=$?
echo "== $suite: exit status $status"
exit $status
