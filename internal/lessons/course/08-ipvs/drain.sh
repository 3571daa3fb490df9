# Opens three connections and three UDP flows, one to each server, takes web-1 out of the Service, and uses all of them.
coproc box { viplab exec box -- bash; }
cat >&"${box[1]}" <<'EOF'
tcp() { for c in 3 4 5; do printf 'GET / HTTP/1.1\r\nHost: web\r\n\r\n' >&$c; grep -o -m 1 'default/web-.' <&$c; done; }
send() { for c in 6 7 8; do echo hello >&$c; done; }
receive() { for c in 6 7 8; do timeout 10 dd bs=2000 count=1 status=none <&$c | grep -o 'default/web-.'; done; }
exec 3<>/dev/tcp/10.96.0.80/80 4<>/dev/tcp/10.96.0.80/80 5<>/dev/tcp/10.96.0.80/80
exec 6<>/dev/udp/10.96.0.80/53 7<>/dev/udp/10.96.0.80/53 8<>/dev/udp/10.96.0.80/53
send; echo UDP before: $(receive | sort)
EOF
read -r line <&"${box[0]}"
echo "$line"

kubectl apply -f retired.yaml >/dev/null 2>&1
until viplab exec n1 -- ipvsadm -Ln -t 10.96.0.80:80 | grep -q 'Masq  *0 '; do :; done
viplab exec n1 -- sh -c 'ipvsadm -Ln -t 10.96.0.80:80; ipvsadm -Ln -u 10.96.0.80:53'

# The first datagram of a flow whose server is gone is lost.
echo 'send; send; echo UDP after: $(receive | sort -u); echo TCP after: $(tcp | sort); exit' >&"${box[1]}"
cat <&"${box[0]}"
wait
