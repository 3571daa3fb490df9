#!/bin/sh
# trace NODE TO: prints the rules that the first packet of a connection from the client to TO met on NODE.
# It reads what rules with the target TRACE report, in the packet's own order.
touch trace.txt
viplab exec "$1" -- xtables-monitor --trace >trace.txt &
monitor=$!
# The monitor prints nothing when it is ready. So connect until it has seen two connections: the second from its start.
tries=0
until [ "$(grep -c 'j MASQUERADE' trace.txt)" -ge 2 ] || [ $tries -ge 100 ]; do
	viplab probe client "$2" >/dev/null
	tries=$((tries + 1))
done
kill $monitor
wait $monitor
id=$(sed -n 's/^ TRACE: [0-9]* \([0-9a-f]*\) .*-j MASQUERADE.*/\1/p' trace.txt | sed -n '2p')
grep " $id " trace.txt | sed '/j MASQUERADE/q' | awk '!seen[$0]++' |
	sed -E "s/ (MAC[A-Z]*|LEN|TOS|TTL|ID)=[^ ]*//g; s/ DF//; s/^(PACKET|\ TRACE): [0-9]+ [0-9a-f]+ /\1: /; s/ +-4 -t [a-z]+ / /"
