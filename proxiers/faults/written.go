package faults

// kubeChains are the proxiers that write the chains of kube-proxy's iptables mode.
var kubeChains = []string{"iptables", "iptables-legacy", "kube-proxy-iptables"}

// written are faults in what proxiers write.
var written = []Fault{
	{
		Name: "no-masquerade", Breaks: "What was marked for it is not masqueraded.",
		On: kubeChains, Rows: []string{"nodeport-node-without-endpoint", "rs-ipt-masq-mark"},
		Text: []Rewrite{{XTables, `^-A KUBE-POSTROUTING .*-j MASQUERADE.*`, ""}},
	},
	{
		Name: "nft-no-masquerade", Breaks: "What is to be masqueraded is not.",
		On: []string{"nftables", "kube-proxy-nftables"}, Rows: []string{"nodeport-node-without-endpoint"},
		Text: []Rewrite{{NFT, `masquerade fully-random`, "return"}},
	},
}
