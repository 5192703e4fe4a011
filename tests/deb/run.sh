#!/bin/bash
# Tries the Debian packages of the folder $1 in a chroot of their own, made by debootstrap from the mirror that this machine's apt uses:
# by_hand.sh in the plain chroot, then booted.sh under a systemd that is PID 1 of a container. Root only; leaves nothing behind.
set -eu -o pipefail

debs=$(realpath "$1")
here=$(cd "$(dirname "$0")" && pwd)
waive() {
	echo "check-deb waived: $*"
	exit 0
}
[ "$(id -u)" -eq 0 ] || waive "only root may make a chroot"
compgen -G "$debs/draftd_*.deb" >/dev/null || { echo "there are no packages in $1: run \`make deb\`" >&2 && exit 1; }

folder=$(mktemp -d /var/tmp/draftd-deb.XXXXXX)
root=$folder/root
finish() {
	umount -q "$root/proc" "$root/dev" || true
	rm -rf --one-file-system "$folder"
}
trap finish EXIT

# what the packages need, less themselves; of alternatives the first
packages() {
	local deb
	for deb in "$debs"/*_"$version"_*.deb; do
		dpkg-deb --field "$deb" Depends
	done | tr ',' '\n' | sed 's/[|(:].*//; s/ //g; /^$/d; /draft/d' | sort -u | paste -s -d ,
}
version=$(dpkg-parsechangelog --file "$here/../../packaging/debian/changelog" --show-field Version)
# shellcheck source=/dev/null
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format "\$(REPO_URI)" 'Created-By: Packages' 'Origin: Debian' "Codename: $suite" | head -n 1)
echo "making a chroot of $suite"
debootstrap --variant=minbase --include="systemd-sysv,dbus,mandoc,bash-completion,$(packages)" "$suite" "$root" ${mirror:+"$mirror"} \
	>"$folder/log" 2>&1 || { tail -n 20 "$folder/log" && exit 1; }

mkdir "$root/check" "$root/check/newer"
cp "$debs"/*_"$version"_*.deb "$here"/*.{sh,py} "$root/check/"
rm -f "$root"/check/*-dbgsym_*.deb
for deb in "$root"/check/*.deb; do # the same as a newer version, to upgrade to
	dpkg-deb --raw-extract "$deb" "$folder/newer"
	sed -i "s/^Version: .*/Version: $version+newer/; /^Depends:/s/(= [^)]*)/(= $version+newer)/g" "$folder/newer/DEBIAN/control"
	dpkg-deb --build "$folder/newer" "$root/check/newer/" >/dev/null
	rm -rf "$folder/newer"
done

mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
failed=0
chroot "$root" /check/by_hand.sh >"$folder/by_hand" 2>&1 || failed=1
cat "$folder/by_hand"
umount "$root/proc" "$root/dev"

# The last unit to start runs the test and ends the container.
cat >"$root/etc/systemd/system/check.service" <<-UNIT
	[Unit]
	After=multi-user.target
	[Service]
	Type=oneshot
	ExecStart=/check/booted.sh
	ExecStopPost=systemctl --no-block poweroff
	TimeoutStartSec=300
	StandardOutput=file:/check/booted
	StandardError=inherit
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../check.service "$root/etc/systemd/system/multi-user.target.wants/"
echo /check/booted.sh >"$root/check/booted"
if ! timeout 400 systemd-nspawn --quiet --directory="$root" --boot --private-network --register=no --keep-unit --console=pipe \
	</dev/null >"$folder/console" 2>&1 && [ "$(wc -l <"$root/check/booted")" -le 1 ]; then
	tail -n 5 "$folder/console"
	echo "waived: systemd can't be PID 1 of a container here"
else
	cat "$root/check/booted"
fi
cat "$folder/by_hand" "$root/check/booted" | awk '
	/^[0-9]+ passed, [0-9]+ failed$/ { passed += $1; failed += $3; counts++ }
	END { printf "%d passed, %d failed\n", passed, failed + (counts < 1); exit failed > 0 || counts < 1 }' || failed=1
exit "$failed"
