# Puts LOG where the second article does. "af" is in KUBE-EXT, which has the rules that KUBE-NODEPORTS had at that time.
n1() { viplab exec n1 -- iptables-nft "$@"; }
n2() { viplab exec n2 -- iptables-nft "$@"; }
n1 -t nat -I PREROUTING 1 -d 192.168.7.11/32 -p tcp -m tcp --dport 31110 -j LOG --log-prefix "192.168.7.11 log "
n1 -t nat -I KUBE-NODEPORTS 1 -p tcp --dport 31110 -j LOG --log-prefix "KUBE-NODEPORTS bf "
n1 -t nat -I KUBE-EXT-2TYZFXBKM236ELT2 2 -p tcp --dport 31110 -j LOG --log-prefix "KUBE-NODEPORTS af "
n1 -I FORWARD -j LOG --log-prefix "FORWARD before "
n1 -t nat -I POSTROUTING -j LOG --log-prefix "POSTROUTING bf "
n1 -t nat -I KUBE-POSTROUTING 2 -j LOG --log-prefix "MARK bf "
n1 -t nat -I KUBE-POSTROUTING 4 -j LOG --log-prefix "MASQUERADE bf "
n2 -t nat -I PREROUTING -p tcp -j LOG --log-prefix "PREROUTING bf "
n2 -I INPUT -s 10.244.1.254 -j LOG --log-prefix "INPUT 1 "
n2 -I FORWARD -s 10.244.1.254 -j LOG --log-prefix "FORWARD 1 "
