# Opens three connections, one to each server, takes web-1 out of the Service, and uses all of them.
coproc box { viplab exec box -- bash; }
cat >&"${box[1]}" <<'EOF'
tcp() { for c in 3 4 5; do printf 'GET / HTTP/1.1\r\nHost: web\r\n\r\n' >&$c; grep -o -m 1 'default/web-.' <&$c; done; }
exec 3<>/dev/tcp/10.96.0.80/80 4<>/dev/tcp/10.96.0.80/80 5<>/dev/tcp/10.96.0.80/80
echo before: $(tcp | sort)
EOF
read -r line <&"${box[0]}"
echo "$line"

kubectl apply -f retired.yaml >/dev/null 2>&1
until viplab exec n1 -- ipvsadm -Ln -t 10.96.0.80:80 | grep -q 'Masq  *0 '; do :; done
viplab exec n1 -- ipvsadm -Ln -t 10.96.0.80:80

echo 'echo after: $(tcp | sort); exit' >&"${box[1]}"
cat <&"${box[0]}"
wait
