// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/viplab/viplab/internal/lab/program"
	"github.com/viplab/viplab/internal/proxiers/kit"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// ownRules is the minor release since which kube-proxy guards 127.0.0.0/8 itself. Since v1.25 it drops packets itself,
// and no longer marks them for the kubelet to drop (KEP-3178).
const ownRules = 27

// The rules of the kubelet (syncNetworkUtil in pkg/kubelet/kubelet_network_linux.go, v1.24).
const (
	kubeletRules = `*nat
:KUBE-MARK-DROP - [0:0]
-A KUBE-MARK-DROP -j MARK --or-mark 0x8000
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-I OUTPUT -j KUBE-FIREWALL
-I INPUT -j KUBE-FIREWALL
`
	guardsLoopback = "-A KUBE-FIREWALL -d 127.0.0.0/8 ! -s 127.0.0.0/8 " +
		"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n"
)

// actAsKubelet makes the rules of the kubelet on a node, unless they are there.
func actAsKubelet(ctx context.Context, node spec.Node) error {
	for _, f := range node.Families {
		name, rules := "ip6tables", kubeletRules
		if f == lab.V4 {
			name, rules = "iptables", kubeletRules+guardsLoopback
		}
		if runAsKubelet(ctx, node, "", name, "-w", "-C", "OUTPUT", "-j", "KUBE-FIREWALL") == nil {
			continue
		}
		if err := runAsKubelet(ctx, node, rules+"COMMIT\n", name+"-restore", "-w", "--noflush"); err != nil {
			return fmt.Errorf("%s: make the rules of the kubelet: %w", node.Name, err)
		}
	}
	node.Log.Info("viplab makes the rules of the kubelet, on which kube-proxy relied before v1.27",
		"chains", "KUBE-MARK-DROP, KUBE-FIREWALL")
	return nil
}

// runAsKubelet runs a program of iptables in the node's network.
func runAsKubelet(ctx context.Context, node spec.Node, input, name string, args ...string) error {
	path, err := kit.LookUp(name, "iptables")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	if _, err := program.Output(cmd, node.Host.NS.Run); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
