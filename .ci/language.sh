#!/bin/sh
# language.sh VARIABLE COMMAND [PACKAGE] prints the absolute path of a command
# that runs: the one VARIABLE names, else the one in PATH, else one it installs
# as root on Debian or Ubuntu. Everything else goes to stderr. Where there is
# none to be had it prints nothing, and the tests that need it are skipped; it
# fails if VARIABLE names one, or REQUIRE_CLIENTS is set.
set -eu

variable=$1 command=$2 package=${3:-$2}

say() { echo "$command: $*" >&2; }

# found NAME prints the path, and fails where NAME is missing or does not run.
found() {
	path=$(command -v "$1") || return 1
	# The tests run in their packages' directories.
	case $path in /*) ;; *) path=$PWD/$path ;; esac
	version=$("$path" --version </dev/null 2>/dev/null | head -n 1) && [ -n "$version" ] || return 1
	say "$path ($version)"
	echo "$path"
}

# none says why there is none, which is no fault unless one is required.
none() {
	say "$1"
	[ -n "${REQUIRE_CLIENTS:-}" ] && exit 1
	say "so the tests that need it are skipped"
	exit 0
}

eval "named=\${$variable:-}"
if [ -n "$named" ]; then
	found "$named" && exit
	say "$variable=$named is missing or does not run"
	exit 1
fi

found "$command" && exit

[ "${NO_INSTALL:-0}" = 0 ] || none "none in PATH, and NO_INSTALL forbids installing it"

system=$( (. /etc/os-release && echo "${ID:-}") 2>/dev/null) || system=
case $system in
debian | ubuntu) ;;
*) none "none in PATH, and it is installed only on Debian or Ubuntu" ;;
esac
[ "$(id -u)" = 0 ] || none "none in PATH, and it is installed only by root"

say "none in PATH; about to run apt-get update, then"
say "apt-get install -y --no-install-recommends $package (NO_INSTALL=1 forbids this)"
export DEBIAN_FRONTEND=noninteractive
if ! apt-get update </dev/null >&2 || ! apt-get install -y --no-install-recommends "$package" </dev/null >&2; then
	none "$package could not be installed"
fi
found "$command" || none "installed, but it is not in PATH or does not run"
