// SPDX-License-Identifier: Apache-2.0

package ruleset

import "testing"

// What the programs of nftables, iptables, ipset and IPVS print follows from the rules of a judged program: names,
// comments and sets of its choice.
func FuzzTexts(f *testing.F) {
	for _, text := range []string{
		"table inet viplab { # handle 1\n\tset a { # handle 2\n\t\ttype ipv4_addr . inet_service\n\t\telements = { 1.2.3.4 . 80 " +
			"comment \"{\",\n\t\t\t5.6.7.8 . 90 }\n\t}\n\tchain in { # handle 3\n\t\ttype nat hook prerouting priority dstnat; " +
			"policy accept;\n\t\tip daddr @a counter packets 1 bytes 2 jump b # handle 4\n\t}\n}\n",
		"*nat\n:PREROUTING ACCEPT [1:2]\n:KUBE-SERVICES - [0:0]\n[3:4] -A PREROUTING -m comment --comment \"a \\\"b\" -j " +
			"KUBE-SERVICES\n-A KUBE-SERVICES -d 10.96.0.1/32 -j DNAT --to-destination 10.0.0.1:80\nCOMMIT\n",
		"create a hash:ip family inet hashsize 64 maxelem 10\nadd a 1.2.3.4 timeout 5\n",
		"IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  -> RemoteAddress:Port Forward " +
			"Weight ActiveConn InActConn\nTCP  0A600001:0050 rr persistent 10800 FFFFFFFF\n  -> 0AF40102:1F90      Masq    1      0\n",
		"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
			"   0: 0100007F:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseNFT(text)
		_, _ = parseSaved("iptables-nft", "ip", text, func(string, string) bool { return true })
		_ = parseIPSets(text)
		_, _ = parseServers(text)
		_, _ = parseSockets("tcp", text)
	})
}
