#!/bin/sh
# trace NODE TO: prints the rules that the first packet of a connection from the client to TO met on NODE.
# It reads what rules with the target TRACE report, in the packet's own order.
viplab exec "$1" -- xtables-monitor --trace >trace.txt &
monitor=$!
# The monitor prints nothing when it is ready, so connect until it has seen a whole connection.
until grep -q POSTROUTING trace.txt; do
	viplab probe client "$2" >/dev/null
done
kill $monitor
id=$(sed -n 's/^PACKET: [0-9]* \([0-9a-f]*\) .* DPORT=[0-9]* SYN *$/\1/p' trace.txt | sed -n '1p')
grep " $id " trace.txt | sed -n '1,/POSTROUTING:rule.*MASQ/p;/KUBE-POSTROUTING/p' | awk '!seen[$0]++' |
	sed -E "s/ (MAC[A-Z]*|LEN|TOS|TTL|ID)=[^ ]*//g; s/ DF//; s/^(PACKET|\ TRACE): [0-9]+ [0-9a-f]+ /\1: /; s/ +-4 -t [a-z]+ / /"
