// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	"github.com/viplab/viplab/proxiers/policycalico"
	"github.com/viplab/viplab/proxiers/policynftables"
)

// Enforced are faults in the rules of network policy enforcers. Their Scenarios are static cases of "viplab netpol".
var Enforced = slices.Concat(enforcedByTables, enforcedByChains)

var enforcedByTables = on(policynftables.New().Name(), []Fault{
	{Name: "nft-replies-judged", Description: "Replies need a policy that allows them.",
		Scenarios: []string{"DIR-01", "DIR-02", "STK-07"},
		Text:      []Rewrite{{NFT, `^add rule .* ct state established,related accept$`, ""}}},
	{Name: "nft-ingress-not-asked", Description: "Ingress policies are not enforced.",
		Scenarios: []string{"TGT-02", "STK-17", "PEER-I6"},
		Text:      []Rewrite{{NFT, `^(add rule \S+ \S+ ingress) ip6? daddr vmap .*`, "$1 accept"}}},
	{Name: "nft-egress-not-asked", Description: "Egress policies are not enforced.",
		Scenarios: []string{"DIR-02", "PEER-E6", "STK-06"},
		Text:      []Rewrite{{NFT, `^(add rule \S+ \S+ egress) ip6? saddr vmap .*`, "$1 accept"}}},
	{Name: "nft-egress-skips-ingress", Description: "What a sender of the same node may send, the receiver gets.",
		Scenarios: []string{"TGT-02"}, Text: []Rewrite{
			{NFT, `^(add rule \S+ \S+ egress) (ct state established,related accept)$`, "$1 $2\n$1 meta mark set 0x1"},
			{NFT, `^(add rule \S+ \S+ ingress) (ct state established,related accept)$`,
				"$1 $2\n$1 meta mark 0x1 accept"},
		}},
	{Name: "nft-allows-by-default", Description: "What no policy of a pod allows goes through.",
		Scenarios: []string{"TGT-01", "DIR-02", "STK-15"},
		Text:      []Rewrite{{NFT, `^(add rule \S+ \S+ (?:in|e)gress-[A-Z2-7]+\S* )log .* drop$`, "${1}accept"}}},
	{Name: "nft-except-lost", Description: "Exceptions of a range are part of it.",
		Scenarios: []string{"IPB-04", "IPB-05", "IPB-10"},
		Text:      []Rewrite{{NFT, `( ip6? [sd]addr \S+| meta nfproto \S+) ip6? [sd]addr != \{[^}]*\}`, "$1"}}},
	{Name: "nft-own-address-as-peer", Description: "Peers of ingress rules are looked for at the destination.",
		Scenarios: []string{"PEER-I6", "PEER-I8", "IPB-01"},
		Text:      []Rewrite{{NFT, `^(add rule \S+ \S+ ingress-by-\S+ ip6? )saddr`, "${1}daddr"}}},
	{Name: "nft-source-ports", Description: "Ports are those of the source.",
		Scenarios: []string{"PORT-I05", "PORT-E08", "PORT-17"},
		Text:      []Rewrite{{NFT, `\b(tcp|udp) dport`, "$1 sport"}}},
	{Name: "nft-udp-is-tcp", Description: "Rules for UDP are about TCP.",
		Scenarios: []string{"PORT-I07", "PORT-I08", "PORT-E09"},
		Text:      []Rewrite{{NFT, `\budp dport`, "tcp dport"}, {NFT, `meta l4proto udp`, "meta l4proto tcp"}}},
	{Name: "nft-named-ports-lost", Description: "Rules with named ports are passed over.",
		Scenarios: []string{"PORT-I13", "PORT-34", "PORT-35"},
		Text:      []Rewrite{{NFT, `^add rule .* daddr \. (tcp|udp) dport .*`, ""}}},
	{Name: "nft-last-pod-forgotten", Description: "The policies of the pods c are not enforced.",
		Scenarios: []string{"TGT-01", "STK-15"},
		Text:      []Rewrite{{NFT, `^(add element .* : )goto \S+/c\b`, "${1}accept"}}},
})

var enforcedByChains = on(policycalico.New().Name(), []Fault{
	{Name: "cali-replies-judged", Description: "Replies need a policy that allows them.",
		Scenarios: []string{"DIR-01", "DIR-02", "STK-07"},
		Text:      []Rewrite{{XTables, `^-A cali-[ft]w-\S+ .*RELATED,ESTABLISHED .*-j ACCEPT$`, ""}}},
	{Name: "cali-mark-stays",
		Description: "What the sender may send, the receiver gets: the mark is not cleared in between.",
		Scenarios:   []string{"TGT-02"},
		Text:        []Rewrite{{XTables, `^-A cali-tw-\S+ .*-j MARK --set-xmark 0x0/0x10000$`, ""}}},
	{Name: "cali-profile-after-policies", Description: "What no policy of a pod allows, its namespace does.",
		Scenarios: []string{"TGT-01", "DIR-02", "STK-15"},
		Text:      []Rewrite{{XTables, `^-A cali-[ft]w-\S+ .*"Drop if no policies passed packet".*`, ""}}},
	{Name: "cali-ingress-not-asked", Description: "Ingress policies are not enforced.",
		Scenarios: []string{"TGT-02", "STK-17", "PEER-I6"},
		Text:      []Rewrite{{XTables, `^-A cali-FORWARD .*-j cali-to-wl-dispatch$`, ""}}},
	{Name: "cali-egress-not-asked", Description: "Egress policies are not enforced.",
		Scenarios: []string{"DIR-02", "PEER-E6", "STK-06"},
		Text:      []Rewrite{{XTables, `^-A cali-FORWARD .*-j cali-from-wl-dispatch$`, ""}}},
	{Name: "cali-sides-swapped", Description: "Peers of ingress rules are looked for at the destination.",
		Scenarios: []string{"PEER-I6", "PEER-I8", "IPB-01"},
		Text:      []Rewrite{{XTables, `^(-A cali-pi-\S+ .*--match-set \S+) src\b`, "$1 dst"}}},
	{Name: "cali-source-ports", Description: "Ports are those of the source.",
		Scenarios: []string{"PORT-I05", "PORT-E08", "PORT-17"}, Text: []Rewrite{{XTables, `--dports`, "--sports"}}},
	{Name: "cali-udp-is-tcp", Description: "Rules for UDP are about TCP.",
		Scenarios: []string{"PORT-I07", "PORT-I08", "PORT-E09"},
		Text:      []Rewrite{{XTables, `^(-A cali-p[io]-\S+ )-p udp`, "${1}-p tcp"}}},
	{Name: "cali-allows-marked-alone", Description: "A rule returns before it has set the mark.",
		Scenarios: []string{"DIR-11", "PEER-I6", "PORT-I05"},
		Text:      []Rewrite{{XTables, `^-A cali-p[io]-\S+ .*-j MARK --set-xmark 0x10000/0x10000$`, ""}}},
})

// on returns faults that apply to one program.
func on(program string, all []Fault) []Fault {
	for i := range all {
		all[i].Proxiers = []string{program}
	}
	return all
}
