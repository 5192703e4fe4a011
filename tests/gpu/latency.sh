#!/bin/bash
# What the socket and the daemon add to a launch on this machine's GPU, from an unpacked archive, in one run: graph replays and
# launches by the host's clock of one process (the column of 1 row), then a bare socket echo, ping, and a 1-row draft, whole and
# less its launch: all threads asleep between calls, then all of them spinning (which takes 4 processors).
# Usage: latency.sh muse|qwen3|dsv4 [host|device]: where the base logits lie, host if absent
set -eu
bin=$(dirname "$0")/../../../bin

case ${1:-} in
muse) vocab=202048 rank=512 ;;
qwen3) vocab=151936 rank=256 ;;
dsv4) vocab=129280 rank=256 ;;
*) sed -n 's/^# Usage: //p' "$0" >&2 && exit 2 ;;
esac
device=()
[ "${2:-host}" = host ] || device=(-d)
"$bin/draftd-gpu-tests" "bench=$1"
echo
"$bin/draftd-wire-bench" -b cuda -v $vocab -r $rank -k 7 "${device[@]}"
