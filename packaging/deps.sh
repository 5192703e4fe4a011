#!/bin/bash
# Installs what building and testing draftd need, if something is missing. Debian 12 and newer; elsewhere it says what to install.
# Usage: deps.sh [deb]: what making and trying the Debian packages needs besides
set -eu

msgpack=libmsgpack-dev # Debian 13 renamed it; what apt calls it is looked up when it is needed
missing=()
# need PACKAGE PROBE...: the package is missing if the probe fails
need() {
	local package=$1
	shift
	"$@" >/dev/null 2>&1 || missing+=("$package")
}
library() {
	pkg-config --exists "$1"
}
module() {
	/usr/bin/python3 -c "import $1"
}
libfuzzer() {
	local program
	program=$(mktemp)
	echo 'int LLVMFuzzerTestOneInput(const char *b, long n) { return 0; }' |
		clang -fsanitize=fuzzer,address,undefined -x c - -o "$program" && rm -f "$program"
}

# building
need gcc command -v gcc
need libc6-dev test -e /usr/include/stdio.h
need make command -v make
need pkg-config command -v pkg-config
need libuv1-dev library libuv
need libinih-dev library inih
need libjansson-dev library jansson
need libsystemd-dev library libsystemd
library msgpack-c 2>/dev/null || need "$msgpack" library msgpack
# testing
need check library check
need python3 test -x /usr/bin/python3
need python3-msgpack module msgpack
need python3-pytest module pytest
need python3-numpy module numpy
need systemd command -v systemd-socket-activate
need mandoc command -v mandoc
need gnuplot-nox command -v gnuplot
need python3-yaml module yaml
need valgrind command -v valgrind
need clang command -v clang
need llvm command -v llvm-cov
need libclang-rt-dev libfuzzer
if [ "${1:-}" = deb ]; then
	need debhelper command -v dh
	need dh-python command -v dh_python3
	need python3-all command -v py3versions
	need lintian command -v lintian
	need chrpath command -v chrpath
	need debootstrap command -v debootstrap
	need systemd-container command -v systemd-nspawn
fi

[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null; then
	echo "missing, under their Debian names: ${missing[*]}; install them and try again" >&2
	exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	command -v sudo >/dev/null || { echo "missing: ${missing[*]}; run as root: apt-get install ${missing[*]}" >&2 && exit 1; }
	as_root=(sudo)
fi
"${as_root[@]}" apt-get update -q
if apt-cache show libmsgpack-c-dev >/dev/null 2>&1; then
	missing=("${missing[@]/#$msgpack/libmsgpack-c-dev}")
fi
echo "installing ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
