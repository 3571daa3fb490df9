// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
)

// hostPorts are the host ports of the pods of each node, in a table of nftables that nothing else uses.
type hostPorts struct {
	mu    sync.Mutex
	nodes map[string]map[store.Key][]string // rules by node and pod
}

// hostPortTable is the name of the table, as the plugin portmap would have one in a cluster.
const hostPortTable = "viplab-hostports"

// publish makes the host ports of a pod reach it. Closing the result ends that.
func (h *hostPorts) publish(node *lab.Node, p *corev1.Pod, addrs []netip.Addr) (func() error, error) {
	rules := hostPortRules(p, addrs)
	if len(rules) == 0 {
		return func() error { return nil }, nil
	}
	key := store.KeyOf(p)
	withdraw := func() error { return h.set(node, key, nil) }
	return withdraw, h.set(node, key, rules)
}

// set replaces the rules of a pod and writes the table of the node.
func (h *hostPorts) set(node *lab.Node, pod store.Key, rules []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.nodes == nil {
		h.nodes = map[string]map[store.Key][]string{}
	}
	if h.nodes[node.Name()] == nil {
		h.nodes[node.Name()] = map[store.Key][]string{}
	}
	pods := h.nodes[node.Name()]
	if pods[pod] = rules; len(rules) == 0 {
		delete(pods, pod)
	}
	var all []string
	for _, r := range pods {
		all = append(all, r...)
	}
	slices.Sort(all)
	return writeHostPorts(node, all)
}

func writeHostPorts(node *lab.Node, rules []string) error {
	body := strings.Join(rules, "\n")
	script := fmt.Sprintf(`table inet %[1]s
flush table inet %[1]s
table inet %[1]s {
  chain ports {
%[2]s
  }
  chain prerouting { type nat hook prerouting priority -105; fib daddr type local jump ports; }
  chain output { type nat hook output priority -105; fib daddr type local jump ports; }
  chain postrouting { type nat hook postrouting priority 95; ct status dnat ct mark 0x76700000 masquerade; }
}
`, hostPortTable, body)
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := node.Run(cmd); err != nil {
		return fmt.Errorf("%s: publish host ports: nft: %w: %s", node.Name(), err, strings.TrimSpace(output.String()))
	}
	return nil
}

// hostPortRules returns the rules that send what is for the host ports to the pod. A pod that reaches itself over the
// node must not see its own address as the source, or it would answer itself: the mark says so to postrouting.
func hostPortRules(p *corev1.Pod, addrs []netip.Addr) []string {
	if p.Spec.HostNetwork {
		return nil
	}
	var out []string
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, port := range c.Ports {
			if port.HostPort == 0 || port.Protocol == corev1.ProtocolSCTP {
				continue
			}
			for _, a := range addrs {
				if rule := hostPortRule(port, a); rule != "" {
					out = append(out, rule)
				}
			}
		}
	}
	return out
}

func hostPortRule(port corev1.ContainerPort, to netip.Addr) string {
	family, target := "ip", to.String()
	if to.Is6() {
		family, target = "ip6", "["+to.String()+"]"
	}
	match := "meta nfproto " + map[string]string{"ip": "ipv4", "ip6": "ipv6"}[family]
	if host, err := netip.ParseAddr(port.HostIP); err == nil && !host.IsUnspecified() {
		if host.Is6() != to.Is6() {
			return ""
		}
		match = fmt.Sprintf("%s daddr %s", family, host)
	}
	proto := strings.ToLower(string(port.Protocol))
	if proto == "" {
		proto = "tcp"
	}
	return fmt.Sprintf("    %[1]s %[2]s dport %[3]d %[4]s saddr %[5]s ct mark set 0x76700000\n"+
		"    %[1]s %[2]s dport %[3]d dnat %[4]s to %[6]s:%[7]d",
		match, proto, port.HostPort, family, to, target, port.ContainerPort)
}
