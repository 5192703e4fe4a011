#!/bin/bash
# Puts the relocatable build $1, every library that it needs except glibc's, with its licence, and the documents $3... into
# $2.tar.gz: for hosts without the packages.
set -eu -o pipefail

build=$1 folder=$2
shift 2
rm -rf "$folder" "$folder.tar.gz"
mkdir -p "$folder"/{bin,lib,include,share/draftd}
install -m 755 "$build"/{draftd,draftctl} "$folder/bin/"
install -m 755 "$build/libdraft.so.0" "$folder/lib/"
ln -s libdraft.so.0 "$folder/lib/libdraft.so"
install -m 644 client/draft.h "$folder/include/"
for document; do
	install -D -m 644 "$document" "$folder/share/doc/draftd/$document"
done
cp -r tests/golden "$folder/share/draftd/"
# where the package finds libdraft three folders up, as installed
install -D -m 644 -t "$folder/lib/python3/dist-packages/draft" client/python/draft/{*.py,py.typed}
install -m 755 "$build/bench/wire_echo" "$folder/bin/draftd-wire-bench"
install -m 755 "$build/tests/draft_echo" "$folder/bin/draftd-echo"
programs=(bin/draftd bin/draftctl bin/draftd-wire-bench bin/draftd-echo lib/libdraft.so.0)
if [ -e "$build/tests/gpu" ]; then # built with CUDA: what a GPU machine needs to try it
	install -m 755 "$build/tests/gpu" "$folder/bin/draftd-gpu-tests"
	mkdir "$folder/share/draftd/gpu"
	cp tests/gpu/*.{py,sh} "$build"/tests/{sticky,driver_fault}.so "$folder/share/draftd/gpu/"
	tests/gpu/sandbox.py --list >"$folder/share/draftd/gpu/syscalls"
	programs+=(bin/draftd-gpu-tests)
fi

glibc='^(ld-linux.*|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil)\.so'
ldd "$build"/{draftd,draftctl} | awk '$2 == "=>" { print $1, $3 }' | sort -u | while read -r name path; do
	if [[ $name =~ $glibc || $name == libdraft.so.0 ]]; then
		continue
	fi
	[ -e "$path" ] || { echo "$name, which the programs need, is not on this machine" >&2 && exit 1; }
	install -m 644 "$path" "$folder/lib/$name"
	package=$(dpkg-query -S "*/$(basename "$(realpath "$path")")" 2>/dev/null | head -n 1 | cut -d: -f1)
	install -D -m 644 "/usr/share/doc/${package:?of $name is not known to dpkg}/copyright" "$folder/share/doc/$package/copyright"
done
strip --strip-unneeded "$folder"/bin/* "$folder"/lib/lib*.so.*

# Every library must come from the archive itself, or be glibc's.
for program in "${programs[@]}"; do
	env -i ldd "$folder/$program" | awk '$2 == "=>" { print $1, $3 }' | while read -r name path; do
		if [[ ! $name =~ $glibc && $(realpath "$path") != $(realpath "$folder")/* ]]; then
			echo "$program takes $name from $path, not from the archive" >&2
			exit 1
		fi
	done
done
tar -C "$(dirname "$folder")" --owner=0 --group=0 --sort=name -czf "$folder.tar.gz" "$(basename "$folder")"
rm -rf "$folder"
echo "$folder.tar.gz: $(du -h "$folder.tar.gz" | cut -f1)"
