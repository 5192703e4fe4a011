# A manual page: the records of options.sh (first file) in place of the lines .\"@NAME of the page (second file).
BEGIN { FS = "\t" }
# A text line must not begin with a control character; a sentence begins on a line of its own.
function text(line) {
	gsub(/\\/, "\\e", line)
	gsub(/[.] /, ".\n", line)
	if (line ~ /^[.']/)
		line = "\\&" line
	print line
}
function options_of(command,   i, field, value, open) {
	for (i = 0; i < count; i++) {
		split(records[i], field, FS)
		if (field[1] != "option" || field[2] != command)
			continue
		if (!open++)
			print ".Bl -tag -width Ds"
		value = field[5] != "" ? " Ar " field[5] : ""
		print ".It " (field[3] != "" ? "Fl " field[3] value " , " : "") "Fl -" field[4] value
		text(field[6])
		if (field[8] != "")
			print ".Pq Bo " field[8] " Bc Ic " field[9]
	}
	if (open)
		print ".El"
}
function keys(   i, field, section) {
	for (i = 0; i < count; i++) {
		split(records[i], field, FS)
		if (field[8] == "")
			continue
		if (field[8] != section) {
			if (section != "")
				print ".El"
			section = field[8]
			print ".Ss [" section "]\\&\n.Bl -tag -width Ds"
		}
		print ".It Ic " field[9] " No = Ar " field[5]
		text(field[6])
		print ".Po"
		if (field[10] != "")
			text(field[10] ";")
		if (field[11] != "")
			text("default " field[11] ";")
		print ".Fl -" field[4] "\n.Pc"
	}
	print ".El"
}
function commands(   i, field) {
	for (i = 0; i < count; i++) {
		split(records[i], field, FS)
		if (field[1] != "command")
			continue
		print ".Ss " field[2] (field[3] != "" ? " " field[3] "\\&" : "")
		text(field[4])
		options_of(field[2])
	}
}
NR == FNR {
	records[count++] = $0
	next
}
$0 == ".\\\"@draftd-options" { options_of("draftd"); next }
$0 == ".\\\"@draftd-keys" { keys(); next }
$0 == ".\\\"@draftctl-options" { options_of("draftctl"); next }
$0 == ".\\\"@draftctl-commands" { commands(); next }
{ print }
