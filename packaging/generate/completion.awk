# The bash completion of `program` (draftd or draftctl): the records of options.sh (first file) put into completion.bash (second).
BEGIN { FS = "\t" }
function join(list, separator, word) {
	return list == "" ? word : list separator word
}
# An option's case: what its value may be.
function answer(scope, letter, name, value, choices,   pattern) {
	pattern = (scope == "*" ? "*:--" name : "\"" scope ":--" name "\"")
	if (letter != "")
		pattern = pattern " | " (scope == "*" ? "*:-" letter : "\"" scope ":-" letter "\"")
	if (choices != "")
		return "\t" pattern ") values=\"" choices "\" ;;\n"
	return "\t" pattern ") " (value ~ /^(PATH|FILE)$/ ? "values=FILES" : "return") " ;;\n"
}
NR == FNR && $1 == "command" && program == "draftctl" {
	order[++count] = $2
	takes_files[$2] = $3 ~ /FILE|PATH/
	split($2, word, " ")
	if (!(word[1] in seconds))
		commands = join(commands, " ", word[1])
	seconds[word[1]] = join(seconds[word[1]], " ", word[2])
}
NR == FNR && $1 == "option" && (program == "draftd") == ($2 == "draftd") {
	names[$2] = join(names[$2], " ", "--" $4)
	if ($5 == "")
		next
	if ($2 != program) {
		of_one = of_one answer($2, $3, $4, $5, $7)
		next
	}
	of_all = of_all answer("*", $3, $4, $5, $7)
	valued = join(valued, " | ", "--" $4 ($3 != "" ? " | -" $3 : ""))
}
NR == FNR { next }
FNR == 1 {
	for (i = 1; i <= count; i++)
		words = words "\t\"" order[i] "\") options=\"" names[order[i]] "\"" (takes_files[order[i]] ? " values=${values:-FILES}" : "") " ;;\n"
	for (first in seconds)
		if (seconds[first] != "") {
			groups = join(groups, "|", first)
			words = words "\t" first ") values=${values:-" seconds[first] "} ;;\n"
		}
	words = words "\t\"\") values=${values:-$commands} ;;\n"
}
/^\t@VALUES@$/ { printf "%s", of_one of_all; next }
/^\t@WORDS@$/ { printf "%s", words; next }
{
	gsub(/@PROGRAM@/, program)
	gsub(/@COMMANDS@/, commands)
	gsub(/@OPTIONS@/, names[program])
	gsub(/@VALUED@/, valued)
	gsub(/@GROUPS@/, groups ~ /\|/ ? "@(" groups ")" : groups == "" ? "\"\"" : groups)
	print
}
