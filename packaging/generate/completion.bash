# bash completion for @PROGRAM@, made from its option tables
_@PROGRAM@() {
	local current=$2 previous=$3 command='' options='' values='' i
	local commands="@COMMANDS@" common="@OPTIONS@"
	# "--base=x" comes as three words
	if [[ $current == = ]]; then
		current=
	elif [[ $previous == = ]]; then
		previous=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	# the command is the first word that is neither an option nor the value of one; that of "model make" has two words
	for ((i = 1; i < COMP_CWORD && ${#commands} > 0; i++)); do
		case ${COMP_WORDS[i]} in
		@VALUED@) [[ ${COMP_WORDS[i + 1]} == = ]] && ((i += 2)) || ((i++)) ;;
		= | -*) ;;
		*)
			command=${COMP_WORDS[i]}
			if [[ $command == @GROUPS@ ]] && ((i + 1 < COMP_CWORD)); then
				command+=" ${COMP_WORDS[i + 1]}"
			fi
			break
			;;
		esac
	done
	case $command:$previous in
	@VALUES@
	esac
	case $command in
	@WORDS@
	esac
	if [[ $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options $common" -- "$current")
	elif [[ $values == FILES ]]; then
		compopt -o filenames 2>/dev/null
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
	else
		mapfile -t COMPREPLY < <(compgen -W "$values" -- "$current")
	fi
}
complete -F _@PROGRAM@ @PROGRAM@
