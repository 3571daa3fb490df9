# Puts a rule without a target at the points where others put LOG: it only counts, and only packets that look as it says.
point() { # NAME, then the rule
	name=$1; shift
	viplab exec n1 -- iptables-nft "$@" -m comment --comment "point $name"
}
svc="-p tcp --dport 31110"; pod="-p tcp -d 10.244.2.2 --dport 8080"
point 1 -t nat -I PREROUTING 1 $svc -d 192.168.7.11 -m mark --mark 0 -m conntrack --ctstate NEW
point 2 -t nat -I KUBE-NODEPORTS 1 $svc -d 192.168.7.11 -m mark --mark 0
point 3 -t nat -I KUBE-EXT-2TYZFXBKM236ELT2 2 $svc -d 192.168.7.11 -m mark --mark 0x4000
point 4 -t nat -I KUBE-SEP-Z3ALJIJO7SUQKTBL 2 $svc -d 192.168.7.11 -m mark --mark 0x4000
point 5 -t filter -I FORWARD 1 $pod -s 192.168.7.201 -m mark --mark 0x4000 -m conntrack --ctstate NEW
point 6 -t nat -I POSTROUTING 1 $pod -s 192.168.7.201 -m mark --mark 0x4000
point 7 -t nat -I KUBE-POSTROUTING 3 $pod -s 192.168.7.201 -m mark --mark 0
