// SPDX-License-Identifier: Apache-2.0

package faults

import "slices"

// Names of proxiers, by what they write.
var (
	// kubeChains write the chains of kube-proxy's iptables mode, kubeTables the tables of its nftables mode.
	kubeChains = []string{"iptables", "iptables-legacy", "kube-proxy-iptables"}
	kubeTables = []string{"nftables", "kube-proxy-nftables"}
	kubeRules  = slices.Concat(kubeChains, kubeTables)
	// ownJumps write the jumps from built-in chains with iptables-restore, too. kube-proxy runs iptables for each jump.
	ownJumps = []string{"iptables", "iptables-legacy"}
	// hooked are the proxiers that still count as converged without the jump from a hook to their rules. External
	// programs do not, because canaries test them on every node.
	hooked = slices.Concat(ownJumps, []string{"nftables", "userspace"})
)

// ruleFaults break rules and sets as proxiers write them.
var ruleFaults = slices.Concat(masquerading, choosing, verdicts, hooking, policyRules)

var masquerading = []Fault{
	{Name: "no-masquerade", Description: "The source of what is to be masqueraded stays as it is.", Proxiers: kubeRules,
		Text: []Rewrite{
			{XTables, `^-A KUBE-POSTROUTING .*-j MASQUERADE.*`, ""},
			{NFT, `masquerade fully-random`, "return"},
		}},
	{Name: "masquerade-everything", Description: "All that leaves a node is masqueraded.", Proxiers: kubeRules,
		Text: []Rewrite{
			{XTables, `^-A KUBE-POSTROUTING -m mark ! --mark .*-j RETURN`, ""},
			{NFT, `(nat-postrouting) .*jump masquerading`, "$1 masquerade fully-random"},
		}},
	{Name: "mark-stays", Description: "The mark of what is masqueraded is not cleared.", Proxiers: kubeChains,
		Text: []Rewrite{{XTables, `^-A KUBE-POSTROUTING .*--xor-mark.*`, ""}}},
	{Name: "no-hairpin-masquerade",
		Description: "A pod that reaches itself through a Service sees its own address as the client's.",
		Proxiers:    slices.Concat(kubeRules, []string{"ipvs"}),
		Text: []Rewrite{
			{XTables, `^(-A KUBE-POSTROUTING .*--match-set KUBE-(6-)?LOOP-BACK \S+ )-j .*`, "$1-j RETURN"},
			{XTables, `^-A KUBE-SEP-\S+ .*-s \S+ .*-j KUBE-MARK-MASQ`, ""},
			{NFT, `^(add|delete|destroy) element \S+ \S+ hairpin-connections .*`, ""},
		}},
	{Name: "off-cluster-not-masqueraded",
		Description: "What comes to a ClusterIP from elsewhere than a pod keeps its source.", Proxiers: kubeRules,
		Text: []Rewrite{
			{XTables, `^-A KUBE-SVC-\S+ .*! -s \S+ .*-j KUBE-MARK-MASQ`, ""},
		}},
	{Name: "nodeport-not-masqueraded",
		Description: "What comes to a NodePort keeps its source, as if its policy were Local.", Proxiers: kubeChains,
		Text: []Rewrite{{XTables, `^(-[AID] KUBE-NODEPORTS .*-j KUBE)-EXT-`, "$1-SVC-"}}},
}

var choosing = []Fault{
	{Name: "first-endpoint-always", Description: "The draw between endpoints always falls on the first.",
		Proxiers: kubeRules, Text: []Rewrite{
			{XTables, ` -m statistic --mode random --probability \S+`, ""},
			{NFT, `numgen random mod \d+`, "numgen random mod 1"},
		}},
	{Name: "last-endpoints-starved", Description: "Of many endpoints the last ones are never drawn.",
		Proxiers: kubeRules, Text: []Rewrite{
			{XTables, `--probability 0\.05\d*`, "--probability 1"},
			{NFT, `numgen random mod \d\d\d\d`, "numgen random mod 1000"},
		}},
	{Name: "halves",
		Description: "Each endpoint is taken with a probability of one half, and the last one gets what is left.",
		Proxiers:    kubeChains, Text: []Rewrite{{XTables, `--probability \S+`, "--probability 0.5"}}},
}

var verdicts = []Fault{
	{Name: "drop-becomes-reject", Description: "What should vanish in silence is refused.", Proxiers: kubeRules,
		Text: []Rewrite{
			{XTables, `^(-[AID] KUBE-(EXTERNAL-)?SERVICES .*)-j DROP`, "$1-j REJECT"},
			{NFT, `(element .* no-endpoint-(services|nodeports) .*): drop`, "$1: goto reject-chain"},
		}},
	{Name: "reject-becomes-drop", Description: "What should be refused vanishes in silence.",
		Proxiers: slices.Concat(kubeRules, []string{"userspace"}),
		Text: []Rewrite{
			{XTables, `^(-[AID] KUBE-((EXTERNAL-)?SERVICES|PORTALS-REFUSED) .*)-j REJECT`, "$1-j DROP"},
			{NFT, `(element .* no-endpoint-(services|nodeports) .*): goto reject-chain`, "$1: drop"},
		}},
	{Name: "invalid-passes", Description: "Packets in conntrack state INVALID are let through.", Proxiers: kubeChains,
		Text: []Rewrite{{XTables, `^-A KUBE-FORWARD .*INVALID .*-j DROP`, ""}}},
	{Name: "invalid-reaches-node", Description: "Packets in conntrack state INVALID reach processes of the node.",
		Proxiers: slices.Concat(ownJumps, []string{"ipvs"}),
		// They are not dropped, because the ipvs proxier would detect that and write them again.
		Text: []Rewrite{{XTables, `^(-A KUBE-(INVALID|IPVS-FILTER) .*INVALID )-j DROP`, "$1-j RETURN"}}},
	{Name: "invalid-of-strangers-dropped",
		Description: "Packets in conntrack state INVALID are dropped, whoever sends them.",
		Proxiers:    ownJumps, Text: []Rewrite{{XTables, `^(-A KUBE-FORWARD )-s \S+ (.*INVALID .*-j DROP)`, "$1$2"}}},
	{Name: "no-forward-accept", Description: "Nothing is let through a FORWARD chain that drops.", Proxiers: kubeChains,
		Text: []Rewrite{{XTables, `^-A KUBE-FORWARD .*-j ACCEPT`, ""}}},
	{Name: "localnet-guard-lost",
		Description: "Neighbours reach 127.0.0.1 of the node, which is routable for the sake of NodePorts.",
		Proxiers:    ownJumps,
		Text:        []Rewrite{{XTables, `^-A KUBE-FIREWALL .*-j DROP`, ""}}},
	{Name: "foreign-traffic-dropped", Description: "TCP connections that are not those of Services are not let through.",
		Proxiers: kubeRules, Text: []Rewrite{
			{XTables, `^-A KUBE-FORWARD .*ESTABLISHED -j ACCEPT`,
				"-A KUBE-FORWARD -p tcp -m conntrack ! --ctstate DNAT -j DROP\n$0"},
			{NFT, `^add rule (\S+ \S+) filter-forward .*jump cluster-ips-check`,
				"$0\nadd rule $1 filter-forward meta l4proto tcp ct status & dnat != dnat drop"},
		}},
	{Name: "icmp-errors-dropped", Description: "ICMP errors about connections are not let through.", Proxiers: kubeRules,
		Text: []Rewrite{
			{XTables, `^-A KUBE-FORWARD .*ESTABLISHED -j ACCEPT`,
				"-A KUBE-FORWARD -m conntrack --ctstate RELATED -j DROP\n$0"},
			{NFT, `^add rule (\S+ \S+) filter-forward .*jump cluster-ips-check`,
				"$0\nadd rule $1 filter-forward ct state related drop"},
		}},
}

var hooking = []Fault{
	{Name: "node-not-served", Description: "Connections of a node's own processes are not translated.", Proxiers: hooked,
		Text: []Rewrite{
			{XTables, `^-[AI] OUTPUT .*-j KUBE-(SERVICES|PORTALS-HOST|NODEPORT-HOST)`, ""},
			{NFT, `^add rule \S+ \S+ nat-output .*jump services`, ""},
		}},
	{Name: "visitors-not-served", Description: "Connections of pods and of hosts outside are not translated.",
		Proxiers: hooked, Text: []Rewrite{
			{XTables, `^-[AI] PREROUTING .*-j KUBE-(SERVICES|PORTALS-CONTAINER|NODEPORT-CONTAINER)`, ""},
			{NFT, `^add rule \S+ \S+ nat-prerouting .*jump services`, ""},
		}},
	{Name: "nodeport-on-primary-address", Description: "NodePorts are served on the first IPv4 address of the node alone.",
		Proxiers: kubeChains,
		// 192.168.7.8/29 contains the primary addresses of all nodes, and no other ones.
		Text: []Rewrite{{XTables, `^(-[AID] KUBE-SERVICES .*)-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS$`,
			"$1-d 192.168.7.8/29 -j KUBE-NODEPORTS"}}},
	{Name: "late-nodeport-addresses-missed", Description: "NodePorts are not on an address that a node gets later.",
		Proxiers: slices.Concat(kubeChains, []string{"nftables", "userspace"}),
		// the addresses of nodeport-late-listed-address, which have their own rules, and those of nodeport-late-address
		Text: []Rewrite{
			{XTables, `^-[AID] KUBE-(SERVICES|NODEPORT-\S+) .*-d (192\.168\.7\.9|fd00:7::19)(/\d+)? .*`, ""},
			{XTables, `^(-[AID] KUBE-SERVICES) .*-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS$`,
				"$1 -d 198.51.100.63 -j RETURN\n$0"},
			{XTables, `^(-[AID] KUBE-SERVICES) .*! -d ::1/128 -j KUBE-NODEPORTS$`,
				"$1 -d 2001:db8:51::63 -j RETURN\n$0"},
			{XTables, `^(-[AID] KUBE-NODEPORT-CONTAINER) (.* 169\.254\.118\.1:\d+)`, "$1 ! -d 198.51.100.63 $2"},
			{XTables, `^(-[AID] KUBE-NODEPORT-CONTAINER) (.* \[fd76:\S+:\d+)`, "$1 ! -d 2001:db8:51::63 $2"},
			{NFT, `^(add|delete|destroy) element .* \{ (192\.168\.7\.9|fd00:7::19) \. .*`, ""},
			{NFT, `^(add|delete|destroy) element .* \{ (198\.51\.100\.63|2001:db8:51::63) \. .*`, ""},
		}},
	{Name: "nodeport-on-ipv6-loopback", Description: "Connections to a NodePort on ::1 are translated, and lost.",
		Proxiers: kubeChains, Text: []Rewrite{{XTables, ` ! -d ::1/128`, ""}}},
	{Name: "local-shortcut-lost",
		Description: "Under externalTrafficPolicy Local, a process of a node without an endpoint counts as outside traffic.",
		Proxiers:    kubeRules, Text: []Rewrite{
			{XTables, `^-A KUBE-EXT-\S+ .*--src-type LOCAL .*-j KUBE-SVC-\S+`, ""},
			{NFT, `^add rule .*fib saddr type local .*(goto service-|vmap @short-circuit).*`, ""},
		}},
	{Name: "pod-shortcut-lost",
		Description: "Under externalTrafficPolicy Local, the node's own pods count as outside traffic.",
		Proxiers:    kubeRules, Text: []Rewrite{
			{XTables, `^-A KUBE-EXT-\S+ .*-s \S+ .*-j KUBE-SVC-\S+`, ""},
			{NFT, `^add rule \S+ \S+ external-\S+ ip6? saddr .*(goto service-|vmap @short-circuit).*`, ""},
		}},
}
