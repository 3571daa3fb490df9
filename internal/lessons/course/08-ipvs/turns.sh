# Opens connections to an address and port, keeps them open, and prints which server got each: bash turns.sh IP PORT N
for _ in $(seq "$3"); do
	exec {connection}<>"/dev/tcp/$1/$2"
	printf 'GET / HTTP/1.1\r\nHost: web\r\n\r\n' >&"$connection"
	while read -r -t 10 line <&"$connection"; do
		case $line in *default/*) break ;; esac
	done
	name=${line#*default/}
	printf '%s ' "${name%%\"*}"
done
echo
