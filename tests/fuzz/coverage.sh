#!/bin/sh
# What the corpora of the fuzz targets reach, a line a file of proto/. Fails below 95 % of all its lines together.
# Usage: coverage.sh FOLDER PROGRAM...: programs that were built with clang's source coverage; FOLDER is for what they write
set -eu
folder=$1
shift
lowest=95

for tool in llvm-profdata llvm-cov; do
	if ! command -v $tool >/dev/null; then
		echo "fuzz-coverage: waived: there is no $tool here (Debian: llvm)"
		exit 0
	fi
done
rm -rf "$folder" && mkdir -p "$folder"
objects=
for program; do
	name=${program##*/}
	LLVM_PROFILE_FILE="$folder/$name.profraw" "$program" -runs=0 -verbosity=0 "tests/fuzz/corpus/$name" \
		$([ ! -d "tests/fuzz/regressions/$name" ] || echo "tests/fuzz/regressions/$name") 2>"$folder/$name.log" ||
		{ cat "$folder/$name.log" && exit 1; }
	objects="${objects:+$objects -object }$program"
done
llvm-profdata merge -o "$folder/all.profdata" "$folder"/*.profraw
llvm-cov export -format=lcov -instr-profile "$folder/all.profdata" $objects proto/*.c >"$folder/all.lcov"
awk -F'[:,]' -v lowest=$lowest '
/^SF:/ { file = $2; sub(/.*\/proto\//, "proto/", file) }
/^DA:/ { lines[file]++; all++; if ($3 > 0) { reached[file]++; all_reached++ } else missed[file] = missed[file] " " $2 }
END {
	for (file in lines)
		printf "%-28s%6d lines%8.1f %%  %s\n", file, lines[file], 100 * reached[file] / lines[file], missed[file] ? "not:" missed[file] : "" | "sort"
	close("sort")
	printf "%-28s%6d lines%8.1f %%, the least is %d %%\n", "proto/", all, 100 * all_reached / all, lowest
	exit all_reached * 100 < lowest * all
}' "$folder/all.lcov"
