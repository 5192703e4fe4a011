#!/bin/bash
# draft.h stands alone, as C11 and as C++11, without a warning. Usage: header.sh HEADER; CC and CXX name the compilers.
set -eu

program='#include "'$(realpath "$1")'"
int main(void)
{
	struct draft_options options = {sizeof(options), 0, 0, 1};
	struct draft *draft = 0;
	return draft_connect(&options, &draft, 0, 0);
}'
warnings='-pedantic-errors -Wall -Wextra -Wundef -Werror -Wno-missing-field-initializers'
"${CC:-cc}" -x c -std=c11 $warnings -fsyntax-only - <<<"$program"
if command -v "${CXX:-c++}" >/dev/null; then
	"${CXX:-c++}" -x c++ -std=c++11 $warnings -fsyntax-only - <<<"$program"
	echo "header: alone as C11 and C++11"
else
	echo "header: alone as C11; no C++ compiler, so not tried as C++"
fi
