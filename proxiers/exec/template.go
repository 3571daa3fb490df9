// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"text/template"

	"mvdan.cc/sh/v3/shell"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// Values are the fields that a command's templates may use. Lists are joined by commas, the primary family first.
type Values struct {
	Kubeconfig  string // path of a kubeconfig for the cluster's API
	NodeName    string
	NodeIP      string // the node's primary address
	NodeIPs     string // one address per family
	PodCIDR     string // the node's own pod ranges
	ClusterCIDR string // the pod ranges of all nodes
	ServiceCIDR string // the ranges of ClusterIPs
	StateDir    string // a writable folder of the node's own, empty at the start

	// ProxyConfig are the settings of the cluster that a scenario needs. Most clusters have none: the value is zero.
	spec.ProxyConfig
	NodePortAddresses string // instead of that of ProxyConfig
	IPVSExcludeCIDRs  string // the same
	MetricsAddress    string // the same; empty if it is not valid
	HealthzAddress    string // the same
}

func valuesOf(node spec.Node, kubeconfig string) Values {
	var ips []string
	for _, f := range node.Families {
		ips = append(ips, node.Host.Addr(f).String())
	}
	v := Values{
		Kubeconfig: kubeconfig, NodeName: node.Name, NodeIP: ips[0], NodeIPs: strings.Join(ips, ","),
		PodCIDR:     joinRanges(node.PodCIDRs, node.Families),
		ClusterCIDR: joinRanges(node.ClusterCIDRs, node.Families),
		ServiceCIDR: joinRanges(node.ServiceCIDRs, node.Families),
		StateDir:    node.StateDir,
	}
	return v.with(node.Config, node.Families)
}

// with returns the values with settings.
func (v Values) with(c spec.ProxyConfig, families []lab.Family) Values {
	v.ProxyConfig, v.NodePortAddresses = c, joinRanges(c.NodePortAddresses, families)
	v.IPVSExcludeCIDRs = joinRanges(c.IPVSExcludeCIDRs, families)
	v.MetricsAddress, v.HealthzAddress = textOf(c.MetricsAddress), textOf(c.HealthzAddress)
	return v
}

// textOf returns the address as text, empty if it is not valid.
func textOf(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// joinRanges joins ranges in the order of the families.
func joinRanges(ranges []netip.Prefix, families []lab.Family) string {
	var out []string
	for _, f := range families {
		for _, p := range nodeaddr.OfFamily(ranges, f) {
			out = append(out, p.String())
		}
	}
	return strings.Join(out, ",")
}

// words are the arguments of a command. Each is a template.
type words []*template.Template

// parseWords parses templates. It checks their syntax and that the fields they use exist.
func parseWords(argv []string) (words, error) {
	var out words
	for _, arg := range argv {
		t, err := template.New("command").Parse(arg)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", arg, err)
		}
		out = append(out, t)
	}
	if _, err := out.fill(Values{}); err != nil {
		return nil, err
	}
	return out, nil
}

// unmentioned returns the names of the settings that differ from their default and that no word mentions.
func (w words) unmentioned(config spec.ProxyConfig) []string {
	var text strings.Builder
	for _, t := range w {
		text.WriteString(t.Root.String())
	}
	var out []string
	for field, value := range reflect.ValueOf(config).Fields() {
		if !value.IsZero() && !strings.Contains(text.String(), "."+field.Name) {
			out = append(out, field.Name)
		}
	}
	return out
}

// fill executes the templates. It leaves out words that become empty.
func (w words) fill(v Values) ([]string, error) {
	var out []string
	for _, t := range w {
		var b strings.Builder
		if err := t.Execute(&b, v); err != nil {
			return nil, fmt.Errorf("%w (there are Kubeconfig, NodeName, NodeIP, NodeIPs, PodCIDR, ClusterCIDR, "+
				"ServiceCIDR and StateDir, and the settings of spec.ProxyConfig)", err)
		}
		if b.Len() > 0 || t.Root.String() == "" {
			out = append(out, b.String())
		}
	}
	return out, nil
}

// Split splits a command line into words as a POSIX shell does, and expands environment variables. It does not run a
// shell: pipes, redirections and other shell features are errors. A template action that contains blanks needs quotes.
func Split(line string) ([]string, error) {
	words, err := shell.Fields(line, nil)
	if err == nil && len(words) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("command %q: %w (no shell runs it; for what needs one, write sh -c '...')", line, err)
	}
	return words, nil
}
