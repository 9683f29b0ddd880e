# Sourced by ./headroom and ./test: the Debian packages that Headroom needs, and how to get them.
#
# need_packages GROUP... sees to it that the packages of the groups are installed: by apt-get where
# this is root or sudo is there, otherwise it says what to install and exits with 4. An entry is a
# package, or PACKAGE:COMMAND where the command may also come from elsewhere. POSIX sh, since the
# first thing that a stranger runs should not need bash.

packages_build="g++:g++ cmake:cmake ninja-build:ninja libfmt-dev libboost-json1.81-dev libcli11-dev
  libsqlite3-dev libcurl4-openssl-dev libisal-dev zlib1g-dev libjs-chart.js"
packages_test="python3:python3 libgtest-dev librapidcheck-dev mold:mold pkg-config:pkg-config"
packages_all="clang-16:clang++-16 libclang-rt-16-dev libbenchmark-dev"

package_is_here() {
  case $1 in
    *:*) command -v "${1#*:}" >/dev/null 2>&1 && return 0 ;;
  esac
  dpkg-query -W -f='${db:Status-Status}\n' "${1%%:*}" 2>/dev/null | grep -qx installed
}

need_packages() {
  missing=
  for group in "$@"; do
    eval "entries=\$packages_$group"
    for entry in $entries; do
      package_is_here "$entry" || missing="$missing ${entry%%:*}"
    done
  done
  # Debian's own python3 cannot make a virtual environment without python3-venv.
  case " $* " in
    *" test "*) python3 -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv" ;;
  esac
  [ -z "$missing" ] || install_packages $missing
}

install_packages() {
  if ! command -v apt-get >/dev/null 2>&1; then
    printf 'headroom: this is not Debian; please install what Debian calls: %s\n' "$*" >&2
    exit 4
  fi
  if [ "$(id -u)" = 0 ]; then
    as_root=
  elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
  else
    printf 'headroom: packages are missing, and I am not root. Please run as root:\n' >&2
    printf '  apt-get install --no-install-recommends %s\n' "$*" >&2
    exit 4
  fi
  printf 'headroom: installing %s\n' "$*" >&2
  apt_log=$(mktemp)
  if ! { $as_root apt-get -qq update &&
         $as_root env DEBIAN_FRONTEND=noninteractive \
           apt-get -qq -y -o Dpkg::Use-Pty=0 --no-install-recommends install "$@"; } \
         >"$apt_log" 2>&1 </dev/null; then
    tail -n 20 "$apt_log" >&2
    rm -f "$apt_log"
    printf 'headroom: apt-get could not install: %s\n' "$*" >&2
    exit 4
  fi
  rm -f "$apt_log"
}
