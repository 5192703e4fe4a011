#!/bin/bash
# libdraft exports what draft.h declares, and nothing else. Usage: symbols.sh LIBRARY HEADER
set -eu -o pipefail

declared=$(grep -oE '\bdraft_[a-z_]+\(' <(sed 's|/\*.*\*/||; /^ *\/\*/,/\*\//d; /^ \*/d' "$2") | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$1" | awk '$2 ~ /[A-Z]/ && $2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
[ -n "$declared" ]
if ! diff <(echo "$declared") <(echo "$exported") >/dev/null; then
	echo "draft.h declares and $1 lacks: $(comm -23 <(echo "$declared") <(echo "$exported") | xargs)"
	echo "$1 exports and draft.h lacks: $(comm -13 <(echo "$declared") <(echo "$exported") | xargs)"
	exit 1
fi
echo "symbols: $(echo "$exported" | wc -l) functions, as declared"
