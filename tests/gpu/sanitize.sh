#!/bin/bash
# Runs the GPU tests' golden cases in every form under memcheck, initcheck and racecheck of compute-sanitizer, which must find
# nothing. Usage: sanitize.sh PROGRAM GOLDEN_FOLDER [CASE...]
set -u

program=$(realpath "$1") golden=$(realpath "$2")
shift 2
cases=("$@")
[ $# -gt 0 ] || cases=(greedy_small sampled_odd_vocab multiplier_soft_cap nan_logits padding_rows)
passed=0 failed=0
if ! command -v compute-sanitizer >/dev/null; then
	echo "waived: compute-sanitizer, of the CUDA Toolkit, is not on the PATH"
	echo "passed 0, failed 0, waived 1"
	exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in "${cases[@]}"; do
	mkdir "$folder/$name"
	cp "$golden/$name.safetensors" "$folder/$name/" || exit 2
	for tool in memcheck initcheck racecheck; do
		if compute-sanitizer --tool $tool "$program" golden "$folder/$name" >"$folder/log" 2>&1 &&
			grep -Eq 'ERROR SUMMARY: 0 errors|RACECHECK SUMMARY: 0 hazards' "$folder/log"; then
			passed=$((passed + 1)) verdict=clean
		else
			failed=$((failed + 1)) verdict=FAILED
			grep -v 'Host Frame' "$folder/log" | head -n 40
		fi
		printf '%-10s %-24s %s: %s\n' $tool "$name" $verdict "$(grep SUMMARY "$folder/log" | sed 's/=* *//')"
	done
done
echo "passed $passed, failed $failed, waived 0"
[ $failed -eq 0 ]
