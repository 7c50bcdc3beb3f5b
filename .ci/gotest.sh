#!/bin/sh
# gotest.sh ARGUMENTS... runs go test, and prints at the end what that printed. A value
# of a flag is part of its argument: -parallel=8.
#
# Leases, deadlines and bounds of real time are missed where a machine stands still for a
# while. A test whose process did so says that when it fails (internal/redistest). Such
# tests are run once more, each alone but for its own subtests, of which some have
# hundreds; that they passed then is told at the end of make race. Nothing is run again
# where another test failed, or where there was a race or a panic.
out=$(mktemp) again=$(mktemp)
trap 'rm -f "$out" "$again"' EXIT
if ${GO:-go} test "$@" >"$out" 2>&1; then
	cat "$out"
	exit
fi
cat "$out"
awk '
	function done() { if (name != "" && !still) firm = 1; if (name != "") names[++n] = name; name = "" }
	/WARNING: DATA RACE/ || /^(panic|fatal error): / { firm = 1 }
	/^(--- |ok|FAIL|PASS|\?)/ { done() }
	/^--- FAIL: / { name = $3; still = 0 }
	/the process stood still for / { still = 1 }
	/^FAIL\t/ { if (n == 0) firm = 1; for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }
	END { exit firm }' "$out" >"$again" || exit 1
[ -s "$again" ] || exit 1
flags=
for arg; do
	case $arg in -*) flags="$flags $arg" ;; esac
done
while read -r package name; do
	told="$name of $package failed while its process stood still"
	echo "== $told: alone once more"
	${GO:-go} test $flags -run "^$name\$" "$package" </dev/null || exit 1
	echo "$told, and passed alone" >>"${REDISTEST_TELLS:-/dev/null}"
done <"$again"
