# Prints, from the output of "viplab trace", the lines that rules with the target LOG would write: the packet as it was
# when it met each of them. IN is the last device that it came in by, OUT the next one that it leaves by.
function print_kept(out,  i) {
	for (i = 0; i < kept; i++) print line[i] "IN=" from[i] " OUT=" (leaves[i] ? out : "") " " packet[i]
	kept = 0
}
/^[a-z0-9.-]+$/ { print_kept(""); node = $1; dev = "" }
$1 == "device" && $3 ~ /^in/ { dev = $2 }
$1 == "device" && $3 ~ /^out/ { print_kept($2) }
/^ *\|/ && !/sourceIP/ {
	gsub(/[ *]/, ""); split($0, t, "|")
	now = "SRC=" t[2] " DST=" t[4] " PROTO=TCP SPT=" t[3] " DPT=" t[5] (t[6] == "0x0" ? "" : " MARK=" t[6])
}
/-j LOG .*--log-prefix/ {
	prefix = $0; sub(/.*--log-prefix "/, "", prefix); sub(/".*/, "", prefix)
	line[kept] = node " kernel: " prefix
	from[kept] = dev
	leaves[kept] = $1 != "prerouting"
	packet[kept++] = now
}
