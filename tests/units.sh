#!/bin/bash
# What `make install` has put below the prefix $1, as systemd's own tools and mandoc see it. Starts nothing.
set -eu -o pipefail

prefix=$1
units=$prefix/lib/systemd/system
worst=25 # tenths of the exposure level of `systemd-analyze security`
passed=0 failed=0
check() {
	local output
	if output=$("${@:2}" 2>&1) && [ -z "${refuses_output:+$output}" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf 'failed: %s\n%s\n' "$1" "$output"
	fi
}
# $1 has the line $2, or one that begins so.
line() {
	grep -q "^$2" "$1"
}
no_line() {
	! line "$@"
}

# An instance stands for its template. Pages are looked at below.
refuses_output=1
for unit in "$units"/draftd*; do
	name=$(basename "$unit")
	check "verify $name" env SYSTEMD_UNIT_PATH="$units:" systemd-analyze verify --man=no "${name/@/@0}"
done
unset refuses_output
for unit in "$units"/*.service; do
	check "security of $(basename "$unit")" systemd-analyze security --offline=true --threshold="$worst" "$unit"
done
for unit in "$units"/draftd{,@}.service; do
	for setting in Type=notify WatchdogSec= Restart=on-failure User=draftd ExecReload=/ NoNewPrivileges=yes \
		ProtectSystem=strict ProtectHome=yes PrivateTmp=yes; do
		check "$setting in $(basename "$unit")" line "$unit" "$setting"
	done
	check "no place to write in $(basename "$unit")" no_line "$unit" '[A-Za-z]*\(WritePaths\|BindPaths\|Directory\|FileSystem\)='
done

# The user exists, and then the folder can be its.
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir "$root/etc"
check sysusers systemd-sysusers --root="$root" "$prefix/lib/sysusers.d/draftd.conf"
check "the user draftd" line "$root/etc/passwd" draftd:
check tmpfiles systemd-tmpfiles --root="$root" --create --prefix=/nowhere "$prefix/lib/tmpfiles.d/draftd.conf"

for page in "$prefix"/share/man/man*/*; do
	check "lint $(basename "$page")" mandoc -Tlint -W warning "$page"
done
# Documentation=man:draftd(8)
while IFS='()' read -r name section; do
	check "the manual page $name($section)" test -e "$prefix/share/man/man$section/$name.$section"
done < <(grep -ho 'man:[^ ]*' "$units"/draftd* | cut -c 5- | sort -u)

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
