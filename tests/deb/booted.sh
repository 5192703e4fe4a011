#!/bin/bash
# The packages and their units under a real systemd: README's walk of an operator, and what the units promise.
set -u
# shellcheck source=tests/deb/lib.sh
. /check/lib.sh

main_pid() { systemctl show --property MainPID --value "${1:-draftd}"; }
sandbox() { sed -n "s/^$1:\t//p" "/proc/$(main_pid)/status"; }
stats() { draftctl stats --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }
inactive() { is "$(systemctl is-active "$1")" inactive; }
as() { runuser -u "$1" -- "${@:2}"; }
useradd alice
useradd mallory
mkdir -p /srv/models

# ---- install, configure, start ----
cd /check || exit
check apt-get install -y -q ./draftd_*.deb ./draftctl_*.deb ./libdraft0_*.deb
check apt-get install -y -q ./libdraft-dev_*.deb ./python3-draft_*.deb
check is "$(systemctl is-enabled draftd.socket draftd.service | paste -s)" "disabled	disabled"
check no_file /run/draftd/draftd.sock
check draftctl model make --vocab 3000 --rank 32 --seed 1 /srv/models/drafter.safetensors
sed -i 's|^#path = /srv/models/.*|path = /srv/models/drafter.safetensors|' /etc/draftd/draftd.conf
check draftd --check-config --config /etc/draftd/draftd.conf
check usermod --append --groups draftd alice
check systemctl enable --now draftd.socket draftd.service

# ---- watch ----
shows "Serving drafter" systemctl status draftd
check draftctl info
check draftctl stats
check as alice draftctl draft --rows 3 --steps 5
refuse "not allowed to connect" as mallory draftctl ping
refuse "only root and the daemon's own user" as alice draftctl drain
shows "ready on the socket" journalctl --unit draftd
as alice python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect("/run/draftd/draftd.sock"); s.send(b"nonsense"); s.recv(999)'
check journalctl --sync
shows "BAD_FRAME" journalctl --unit draftd DRAFTD_PEER_UID="$(id -u alice)" --output cat --output-fields DRAFTD_ERROR
mkdir -p /var/lib/prometheus/node-exporter
check systemctl enable --now draftd-metrics.timer
within 30 test -s /var/lib/prometheus/node-exporter/draftd.prom
check is "$(stat -c %a /var/lib/prometheus/node-exporter/draftd.prom)" 644

# ---- the sandbox, of the process itself ----
check is "$(sandbox CapEff)" 0000000000000000
check is "$(sandbox CapBnd)" 0000000000000000
check is "$(sandbox NoNewPrivs)" 1
check is "$(sandbox Seccomp)" 2
check is "$(stat -c %U "/proc/$(main_pid)")" draftd
# Folders that it may write in, by its own view: its own /tmp, and what the driver shares memory by. Its socket is made for it.
writable() { nsenter --mount="/proc/$(main_pid)/ns/mnt" runuser -u draftd -- find / -path /proc -prune -o -type d -writable -print 2>/dev/null | sort | paste -s -d ' '; }
check is "$(writable)" "/dev/mqueue /dev/shm /tmp /var/tmp"
check systemd-analyze security --threshold=25 draftd.service draftd-metrics.service

# ---- reload ----
check draftctl model make --vocab 3000 --rank 32 --seed 2 /srv/models/new.safetensors
check mv /srv/models/new.safetensors /srv/models/drafter.safetensors
check systemctl reload draftd
check is "$(stats generation)" 2
mv /srv/models/drafter.safetensors /srv/models/kept
echo nonsense >/srv/models/drafter.safetensors
refuse "" systemctl reload draftd
check is "$(stats generation)" 2
check is "$(systemctl is-active draftd)" active
shows "the old model serves on" journalctl --unit draftd
mv /srv/models/kept /srv/models/drafter.safetensors

# ---- a daemon that dies or hangs is replaced, and clients wait for the next one ----
pid=$(main_pid)
check systemctl kill --signal=KILL draftd
check draftctl ping
check isnt "$(main_pid)" "$pid"
check is "$(systemctl show --property NRestarts --value draftd)" 1 # by Restart=, not by the client
mkdir -p /run/systemd/system/draftd.service.d
printf '[Service]\nWatchdogSec=1\n' >/run/systemd/system/draftd.service.d/watchdog.conf
check systemctl daemon-reload
check systemctl restart draftd
pid=$(main_pid)
check systemctl kill --signal=STOP draftd
replaced() { isnt "$(main_pid)" "$1" && draftctl --timeout 1 ping && isnt "$(main_pid)" 0; }
within 30 replaced "$pid"
shows "atchdog timeout" journalctl --unit draftd
rm -r /run/systemd/system/draftd.service.d
check systemctl daemon-reload

# ---- restarts, a death and a drain under load: nobody is refused, and nothing is lost or wrong ----
as alice /check/load.py /run/load-stops >/run/load 2>&1 &
load=$!
all_back() { [ "$(stats connections)" -eq 5 ]; } # with the one that asks
within 60 grep -q drafting /run/load
for turn in {1..10}; do
	pid=$(main_pid)
	case $turn in
	4) check systemctl kill --signal=KILL draftd ;;
	8) check draftctl drain ;;
	*) check systemctl restart draftd ;;
	esac
	within 30 replaced "$pid" # at the latest by this client
	within 30 all_back
done
touch /run/load-stops
wait "$load"
check is "$?" 0
cat /run/load
check is "$(sed -n 's/.* over \([0-9]*\) to .*/\1/p' /run/load)" 11

# ---- drain and stop ----
check draftctl drain
within 30 inactive draftd
check is "$(systemctl show --property Result --value draftd)" success
within 30 inactive draftd-metrics.timer
refuse "" systemctl start draftd-metrics.service
check inactive draftd
check draftctl ping # starts it
check is "$(systemctl is-active draftd)" active
check systemctl stop draftd.socket draftd.service
refuse "" draftctl ping
check systemctl start draftd.socket draftd.service

# ---- one instance a GPU; here there is none, which is said, and then the processor has to do ----
refuse "" systemctl start draftd@0.service
check systemctl stop draftd@0.service draftd@0.socket
mkdir -p /run/systemd/system/draftd@.service.d
printf '[Service]\nExecStart=\nExecStart=/usr/bin/draftd --config /etc/draftd/draftd.conf\n' >/run/systemd/system/draftd@.service.d/cpu.conf
check systemctl daemon-reload
check systemctl enable --now draftd@0.service
check draftctl --socket /run/draftd/0.sock draft
check systemctl reload draftd@0
check as alice draftctl --socket /run/draftd/0.sock ping

# ---- upgrade: the daemons are new, the sockets and the settings are not ----
pid=$(main_pid) instance=$(main_pid draftd@0) socket=$(stat -c %i /run/draftd/draftd.sock)
cd /check/newer || exit
check apt-get install -y -q ./draftd_*.deb ./draftctl_*.deb ./libdraft0_*.deb ./libdraft-dev_*.deb
check isnt "$(main_pid)" "$pid"
check isnt "$(main_pid draftd@0)" "$instance"
check is "$(stat -c %i /run/draftd/draftd.sock)" "$socket"
check grep -q '^path = ' /etc/draftd/draftd.conf
check draftctl ping
check draftctl --socket /run/draftd/0.sock ping

# ---- remove ----
check systemctl disable draftd@0.service
check apt-get remove -y -q draftd
check is "$(grep -l draftd /proc/[0-9]*/comm)" ""
check no_file /run/draftd/draftd.sock
check no_file /run/draftd/0.sock
check apt-get purge -y -q draftd draftctl libdraft0
check is "$(find /etc /usr /var /lib -name '*draft*' -not -path '*/prometheus/*' -not -path '/var/log/*' -not -path '/var/lib/private*')" ""
finish
