#!/bin/bash
# The packages where no systemd runs, as in a container: install, start by hand, draft, remove, purge.
set -u
# shellcheck source=tests/deb/lib.sh
. /check/lib.sh

check apt-get install -y -q /check/*.deb
check id -u draftd
check is "$(stat -c '%U:%G %a' /run/draftd)" "draftd:draftd 755"
for program in draftd draftctl; do
	check "$program" --version
done
for page in man8/draftd.8 man5/draftd.conf.5 man1/draftctl.1 man3/libdraft.3 man7/draft-protocol.7; do
	check mandoc "/usr/share/man/$page.gz"
done
check bash -c '. /usr/share/bash-completion/bash_completion; __load_completion draftctl; complete -p draftctl'

check draftctl model make --vocab 3000 --rank 32 --seed 1 /srv/model.safetensors
refuse "there is no model" draftd --config /etc/draftd/draftd.conf
sed -i 's|^#path = /srv/models/.*|path = /srv/model.safetensors|' /etc/draftd/draftd.conf
shows "configuration ok" draftd --check-config --config /etc/draftd/draftd.conf

exec {log}< <(exec runuser -u draftd -- draftd --config /etc/draftd/draftd.conf 2>&1)
daemon=$!
while read -r -t 60 -u "$log" line && [[ $line != *"ready on"* ]]; do :; done
shows "ready on /run/draftd/draftd.sock" echo "$line"
check draftctl draft --rows 3 --steps 5
shows "3000" runuser -u draftd -- python3 -c 'import draft; print(draft.connect().model.vocab)'
check runuser -u draftd -- draftctl drain
wait "$daemon"
check is $? 0
check no_file /run/draftd/draftd.sock

# the socket that systemd would pass, from the tool that does only that
systemd-socket-activate --listen=/run/draftd/s draftd --config /etc/draftd/draftd.conf 2>/dev/null &
within 10 test -S /run/draftd/s
check draftctl --socket /run/draftd/s draft
check draftctl --socket /run/draftd/s drain
wait $!
check is $? 0
rm /run/draftd/s

check apt-get remove -y -q draftd
check test -e /etc/draftd/draftd.conf
check no_file /usr/bin/draftd
check apt-get purge -y -q draftd draftctl libdraft0 libdraft-dev python3-draft
check no_file /etc/draftd
check is "$(find / -xdev -path /check -prune -o -path /proc -prune -o -path /srv -prune -o -name '*draft*' -print | grep -v '^/run/draftd$')" ""
finish
