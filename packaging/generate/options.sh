#!/bin/sh
# What the option tables of draftd ($1) and draftctl ($2) say, as --help shows it, for those that make the manual pages, the
# completions and draftd.conf. One record a line, its fields between tabs:
#
#   command  NAME OPERANDS DESCRIPTION
#   option   COMMAND LETTER NAME VALUE HELP CHOICES SECTION KEY RANGE DEFAULT
#
# COMMAND is "draftd", "draftctl" (options of every command) or a command of draftctl; CHOICES lie between blanks; SECTION and what
# comes after it are draftd's. In a help of draftctl's, range and default stand at the end of HELP.
set -eu
unset DRAFTD_SOCKET # draftctl would show it as the default

here=$(dirname "$0")
help() {
	program=$1
	shift
	echo "@ $*"
	"$program" "$@" --help
}
{
	echo "@ draftd"
	"$1" --help
	echo "@ draftctl"
	"$2" --help
	"$2" --help | awk '/^Commands:$/ { on = 1; next } on && /^$/ { exit } on' | sed 's/^  //; s/  .*//' | while read -r command; do
		# shellcheck disable=SC2086 # "model make" is two words
		help "$2" $command
	done
} | awk -f "$here/options.awk"
