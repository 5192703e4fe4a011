#!/bin/bash
# Builds the Debian packages from the files that git knows, as they are now, and looks them over with lintian: $1/*.deb.
# CUDA and CUDA_HOME count as in the Makefile.
set -eu -o pipefail

folder=$1
unset MAKEFLAGS MAKELEVEL MFLAGS BUILD DESTDIR PREFIX
rm -rf "$folder"
source=$folder/source
mkdir -p "$source"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$source"
cp -r "$source/packaging/debian" "$source/debian"
cd "$source"
nice dpkg-buildpackage -us -uc
cd ..
lintian --fail-on error,warning --info draftd_*.changes
ls -- *.deb
