# Makes a virtual server of n1 that gives web-1 the weight 3 and the others 1, and prints which servers get ten
# connections that stay open: bash scheduler.sh SCHEDULER PORT POD...
at=192.168.7.11:$2
viplab exec n1 -- sh -c "
	ipvsadm -A -t $at -s $1
	ipvsadm -a -t $at -r 10.244.1.5:80 -m -w 3
	ipvsadm -a -t $at -r 10.244.2.2:80 -m -w 1
	ipvsadm -a -t $at -r 10.244.2.3:80 -m -w 1"
for pod in "${@:3}"; do
	printf '%-4s %s: ' "$1" "$pod"
	viplab exec "$pod" -- bash -s 192.168.7.11 "$2" 10 <turns.sh
done
viplab exec n1 -- ipvsadm -D -t "$at"
