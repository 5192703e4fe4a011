#!/bin/bash
# From nothing to draft tokens: makes a random model, starts draftd on the CPU, drafts, measures, stops. Leaves nothing behind.
set -eu -o pipefail

build=${BUILD:-build}
folder=$(mktemp -d /tmp/draftd-demo.XXXXXX)
daemon=
finish() {
	status=$?
	trap - EXIT INT TERM
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		wait "$daemon" || status=$?
	fi
	[ "$status" -eq 0 ] || echo "demo: failed with status $status" >&2
	rm -rf "$folder"
	exit "$status"
}
trap finish EXIT
trap 'exit 130' INT TERM

step() {
	printf '\n\033[1m%s\033[0m\n' "$*"
}
[ -t 1 ] || step() { printf '\n%s\n' "$*"; }
ctl() {
	"$build/draftctl" --socket "$folder/draftd.sock" "$@"
}

step "1. A model: the Markov head of a drafter, with random weights"
"$build/draftctl" model make --vocab 32000 --rank 128 --seed 1 "$folder/demo.safetensors"

step "2. draftd serves it on a Unix socket, on the CPU"
exec {log}< <(exec "$build/draftd" --backend cpu --model "$folder/demo.safetensors" --socket "$folder/draftd.sock" 2>&1)
daemon=$!
while read -r -t 60 -u "$log" line; do
	echo "$line"
	[[ $line == *"ready on"* ]] && break
done
[[ $line == *"ready on"* ]]

step "3. Draft tokens: three sequences, six tokens each, drawn at temperature 0.8"
ctl draft --rows 3 --steps 6 --temperature 0.8

step "4. The same from C: client/examples/draft.c"
"$build/examples/draft" "$folder/draftd.sock"

step "5. How fast: two seconds of requests with 4 rows of 4 steps"
ctl bench --concurrency 2 --rows 4 --steps 4 --duration 2 --warmup 0.2 --base host

step "6. SIGTERM: draftd answers what it has accepted, and exits 0"
kill "$daemon"
wait "$daemon"
daemon=
cat <&"$log"
