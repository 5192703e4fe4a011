# draftd.conf from the records of options.sh: every key with its default, all of it commented.
BEGIN {
	FS = "\t"
	print "# The settings of draftd: every key, with its default behind a \"#\". draftd.conf(5) says more."
	print "#"
	print "# Sizes take K, M, G or T, times s, ms or us. Keep comments on lines of their own. Nothing is read again before"
	print "# `systemctl reload draftd`; `draftd --check-config --config FILE` says the first thing that is wrong."
	print "# [model] path is required; the sockets of draftd.socket and draftd@.socket count more than [socket]."
}
$1 != "option" || $8 == "" { next }
$8 != section {
	section = $8
	print "\n[" section "]"
}
{
	printf "\n# %s", $6
	if ($10 != "")
		printf " (%s)", $10
	print ""
	value = $11
	if (value == "")
		value = $5 == "PATH" ? "/srv/models/drafter.safetensors" : $5
	print "#" $9 " = " value
}
