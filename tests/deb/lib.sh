# What by_hand.sh and booted.sh share. Sourced; `finish` ends both.
# shellcheck shell=bash

export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
passed=0 failed=0
report() { # report STATUS NAME OUTPUT
	if [ "$1" -eq 0 ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		printf 'failed: %s\n%s\n' "$2" "$3"
	fi
}
# check COMMAND...: must succeed
check() {
	local output status=0
	output=$("$@" 2>&1) || status=$?
	report "$status" "$*" "$output"
}
# refuse WORD COMMAND...: must fail, and say so
refuse() {
	local output word=$1
	shift
	if output=$("$@" 2>&1); then
		report 1 "$* did not fail" "$output"
	else
		[[ $output == *"$word"* ]]
		report $? "$* does not say \"$word\"" "$output"
	fi
}
# shows WORD COMMAND...: must succeed, and say so
shows() {
	local output word=$1 status=0
	shift
	output=$("$@" 2>&1) || status=$?
	[[ $status -eq 0 && $output == *"$word"* ]]
	report $? "$* does not say \"$word\"" "$output"
}
# within SECONDS COMMAND...: must succeed by then
within() {
	local end=$((SECONDS + $1)) output
	shift
	until output=$("$@" 2>&1); do
		if [ "$SECONDS" -ge "$end" ]; then
			report 1 "$* (in time)" "$output"
			return
		fi
		sleep 0.05
	done
	report 0 "$*" ""
}
is() { [ "$1" = "$2" ]; }
isnt() { [ "$1" != "$2" ]; }
no_file() { [ ! -e "$1" ]; }
finish() {
	echo "$passed passed, $failed failed"
	exit $((failed > 0))
}
