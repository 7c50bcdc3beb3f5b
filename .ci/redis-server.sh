#!/bin/sh
# Prints the absolute path of a redis-server that runs: the one REDIS_SERVER
# names, else the one in PATH, else one it installs. Everything else goes to
# stderr. Where there is none to be had it fails; it never lets tests skip it.
set -eu

say() { echo "redis-server: $*" >&2; }

# found NAME prints the path, and fails where NAME is missing or does not run.
found() {
	path=$(command -v "$1") || return 1
	# The tests run in their packages' directories.
	case $path in /*) ;; *) path=$PWD/$path ;; esac
	version=$("$path" --version </dev/null 2>/dev/null) || return 1
	say "$path ($version)"
	echo "$path"
}

# A server asked for by name is the only one that will do.
if [ -n "${REDIS_SERVER:-}" ]; then
	found "$REDIS_SERVER" && exit
	say "REDIS_SERVER=$REDIS_SERVER is missing or does not run"
	exit 1
fi

found redis-server && exit

if [ "${NO_INSTALL:-0}" != 0 ]; then
	say "none in PATH, and NO_INSTALL forbids installing it"
	say "install redis-server, or set REDIS_SERVER to its path"
	exit 1
fi

system=$( (. /etc/os-release && echo "${ID:-}") 2>/dev/null) || system=
case $system in
debian | ubuntu) debian=yes ;;
*) debian=no ;;
esac
if [ $debian = no ] || [ "$(id -u)" != 0 ]; then
	say "none in PATH, and it is installed only by root on Debian or Ubuntu"
	say "install it (apt-get install redis-server, dnf install redis, apk add redis,"
	say "brew install redis), or set REDIS_SERVER to its path"
	exit 1
fi

say "none in PATH; about to run apt-get update, then"
say "apt-get install -y --no-install-recommends redis-server, starting no service"
say "(NO_INSTALL=1 forbids this)"

# Debian starts what it installs unless policy-rc.d says 101. One that is there
# already is the administrator's word, and stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ] && [ ! -L $policy ]; then
	trap 'rm -f $policy' EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	printf '#!/bin/sh\n# Put here by "make test" of shunt while it installs redis-server; safe to delete.\nexit 101\n' >$policy
	chmod 755 $policy
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update </dev/null >&2
apt-get install -y --no-install-recommends redis-server </dev/null >&2

found redis-server || {
	say "installed, but it is not in PATH or does not run"
	exit 1
}
