# The bash completion of `program` (draftd or draftctl) from the records of options.sh.
BEGIN { FS = "\t" }
$1 == "command" {
	order[++count] = $2
	has_files[$2] = $3 ~ /FILE|PATH/
}
$1 == "option" && (program == "draftd") == ($2 == "draftd") {
	names[$2] = names[$2] " --" $4
	if ($5 == "")
		next
	# options of every command stand below those of one
	scope = $2 == program ? "*" : $2
	pattern = quoted(scope, $4)
	if ($3 != "")
		pattern = pattern " | " quoted(scope, "-" $3)
	answer = $7 != "" ? "values=\"" $7 "\"" : $5 == "PATH" || $5 == "FILE" ? "values=FILES" : "return"
	line = "\t" pattern ") " answer " ;;\n"
	if (scope == "*")
		common_values = common_values line
	else
		command_values = command_values line
}
function quoted(scope, option) {
	option = (option ~ /^-/ ? "" : "--") option
	return scope == "*" ? "*:" option : "\"" scope ":" option "\""
}
END {
	print "# bash completion for " program "(" (program == "draftd" ? 8 : 1) "), made from its option tables"
	print "_" program "() {"
	print "\tlocal current=$2 previous=$3 command=" program " common=\"" substr(names[program], 2) "\" words= values= i"
	print "\t# \"--base=x\" comes as three words"
	print "\tif [[ $current == = ]]; then"
	print "\t\tcurrent="
	print "\telif [[ $previous == = ]]; then"
	print "\t\tprevious=${COMP_WORDS[COMP_CWORD - 2]}"
	print "\tfi"
	if (program == "draftctl") {
		print "\t# the command is the first word that is neither an option nor an option's value"
		print "\tfor ((i = 1; i < COMP_CWORD; i++)); do"
		print "\t\tcase ${COMP_WORDS[i]} in"
		print "\t\t--socket | -s | --timeout | -t) ((i++)) ;;"
		print "\t\t= | -*) ;;"
		print "\t\tmodel)"
		print "\t\t\tcommand=model"
		print "\t\t\t((i + 1 == COMP_CWORD)) || command+=\" ${COMP_WORDS[i + 1]}\""
		print "\t\t\tbreak"
		print "\t\t\t;;"
		print "\t\t*)"
		print "\t\t\tcommand=${COMP_WORDS[i]}"
		print "\t\t\tbreak"
		print "\t\t\t;;"
		print "\t\tesac"
		print "\tdone"
	}
	print "\tcase $command:$previous in"
	printf "%s%s", command_values, common_values
	print "\tesac"
	print "\tcase $command in"
	for (i = 1; i <= count; i++) {
		name = order[i]
		if (name ~ / /) {
			split(name, word, " ")
			groups[word[1]] = groups[word[1]] " " word[2]
			first = word[1]
		} else {
			first = name
		}
		if (!seen[first]++)
			firsts = firsts " " first
		if (program == "draftctl")
			print "\t\"" name "\") words=\"" substr(names[name], 2) "\"" (has_files[name] ? " values=${values:-FILES}" : "") " ;;"
	}
	if (program == "draftctl") {
		for (group in groups)
			print "\t" group ") values=${values:-" substr(groups[group], 2) "} ;;"
		print "\tdraftctl) values=${values:-" substr(firsts, 2) "} ;;"
	}
	print "\tesac"
	print "\tif [[ $current == -* ]]; then"
	print "\t\tmapfile -t COMPREPLY < <(compgen -W \"$words $common\" -- \"$current\")"
	print "\telif [[ $values == FILES ]]; then"
	print "\t\tcompopt -o filenames 2>/dev/null"
	print "\t\tmapfile -t COMPREPLY < <(compgen -f -- \"$current\")"
	print "\telse"
	print "\t\tmapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$current\")"
	print "\tfi"
	print "}"
	print "complete -F _" program " " program
}
