# The parser of options.sh: reads each --help after a line "@ COMMAND".
function flush_option() {
	if (name == "")
		return
	# " (inline or host, default inline)"
	if (!choices && match(help, / \([^()]* or [^()]*, default [^()]*\)$/)) {
		choices = substr(help, RSTART + 2, RLENGTH - 3)
		sub(/, default .*/, "", choices)
		gsub(/ or /, " ", choices)
	}
	print "option", command, letter, name, value, help, choices, section, key, range, initial
	name = ""
}
function flush_command() {
	if (described)
		print "command", command, operands, description
	described = 0
}
BEGIN { OFS = "\t" }
/^@ / {
	flush_option()
	flush_command()
	command = substr($0, 3)
	part = operands = description = ""
	next
}
/^usage: draftctl / && command != "draftctl" {
	operands = substr($0, length("usage: draftctl " command) + 2)
	sub(/^\[OPTIONS\] ?/, "", operands)
	described = 1
	part = "description"
	next
}
/^Options:$/ || /^Options of every command:$/ {
	flush_option()
	flush_command()
	# said once, for draftctl itself
	part = $0 == "Options:" || command == "draftctl" ? "options" : "common"
	next
}
part == "common" { next }
part == "description" {
	if ($0 != "")
		description = description (description == "" ? "" : " ") $0
	next
}
/^  (   |-., )? *--[a-z]/ && (command == "draftd" || part == "options") {
	flush_option()
	line = $0
	letter = match(line, /^  -.,/) ? substr(line, 4, 1) : ""
	sub(/^ *(-., )? *--/, "", line)
	match(line, /^[a-z0-9-]+/)
	name = substr(line, 1, RLENGTH)
	line = substr(line, RLENGTH + 1)
	value = choices = section = key = range = initial = ""
	if (match(line, /^ [A-Z]+/)) {
		value = substr(line, 2, RLENGTH - 1)
		line = substr(line, RLENGTH + 1)
	}
	sub(/^ +/, "", line)
	help = line
	next
}
name != "" && command == "draftd" && /^ +\[[a-z]+\] / { # "[cuda] wait: spin, sleep; default spin"
	line = $0
	sub(/^ +\[/, "", line)
	section = key = range = line
	sub(/\].*/, "", section)
	sub(/^[^ ]* /, "", key)
	sub(/^[^ ]* /, "", range)
	sub(/:.*/, "", key)
	if (!sub(/^[^:]*: /, "", range))
		range = ""
	if (match(range, /(; |^)default .*/)) {
		initial = substr(range, RSTART)
		sub(/^(; )?default /, "", initial)
		range = substr(range, 1, RSTART - 1)
	}
	if (value == "NAME") {
		choices = range
		gsub(/,/, "", choices)
	}
	next
}
name != "" && /^ +[^ ]/ {
	line = $0
	sub(/^ +/, "", line)
	help = help (help == "" ? "" : " ") line
	next
}
{ flush_option() }
END {
	flush_option()
	flush_command()
}
