// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// nftShape is about the table of an nftables proxier.
func nftShape() spec.Scenario {
	return spec.Scenario{
		ID: "rs-nft-table", Needs: []spec.Feature{spec.NFTables, spec.ClusterIP, spec.NodePort, spec.ETPLocal},
		Given: []store.Object{
			Backend("a1", "n1"), Backend("a2", "n2"), Service("web", NodePort()), Service("empty"),
			Pod("l1", "n1", App("local"), TCP(8080)), Service("local", NodePort(), ETPLocal()),
		},
		Steps: []spec.Step{{Check: EachFamily(nftTables)}},
	}
}

func nftTables(ctx context.Context, w spec.World, family lab.Family) error {
	n1, n3 := listNFT(ctx, w, "n1", family), listNFT(ctx, w, "n3", family)
	return errors.Join(
		virtualIPs(ctx, w, n1, family), nodePorts(w, n1, family), hairpins(w, n1, family),
		withoutEndpoints(w, n1, n3, family))
}

// drawing is a rule that draws one of n.
var drawing = regexp.MustCompile(`numgen random mod (\d+) `)

// virtualIPs wants the ClusterIP in a verdict map, which leads to a draw of two, and in no other table.
func virtualIPs(ctx context.Context, w spec.World, t nftTable, family lab.Family) error {
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
	keys := OfFamily(family, "ipv4_addr", "ipv6_addr") +
		" . inet_proto . inet_service : verdict"
	if got := t.typeOf("service-ips"); got != keys {
		return fmt.Errorf("map service-ips is %q, not a map of %s", got, keys)
	}
	var err error
	key := fmt.Sprintf("%s . tcp . 80", vip.Addr())
	if _, ok := t.elements("cluster-ips")[vip.Addr().String()]; !ok {
		err = errors.Join(err, fmt.Errorf("set cluster-ips lacks %s", vip.Addr()))
	}
	chain, found := strings.CutPrefix(t.elements("service-ips")[key], "goto ")
	if !found {
		return errors.Join(err, fmt.Errorf("map service-ips leads from %s nowhere", key))
	}
	if m := drawing.FindStringSubmatch(t.block("chain", chain)); m == nil || m[1] != "2" {
		err = errors.Join(err, fmt.Errorf("chain %s does not draw one of two endpoints:\n%s", chain, t.block("chain", chain)))
	}
	return errors.Join(err, noOtherTable(ctx, w, vip.Addr().String()))
}

// noOtherTable wants nothing about an address outside of the tables kube-proxy.
func noOtherTable(ctx context.Context, w spec.World, addr string) error {
	all := spec.Must(w.Run(ctx, "n1", "nft", "list", "ruleset"))
	table := ""
	for line := range strings.Lines(all) {
		if strings.HasPrefix(line, "table ") {
			table = strings.TrimSuffix(strings.TrimSpace(line), " {")
		}
		if strings.Contains(line, addr+" ") && !strings.HasSuffix(table, " kube-proxy") {
			return fmt.Errorf("%s has to do with %s: %s", table, addr, strings.TrimSpace(line))
		}
	}
	return nil
}

// nodePorts wants the NodePort in a verdict map: by itself, or with each address of the node that serves it.
func nodePorts(w spec.World, t nftTable, family lab.Family) error {
	to := spec.Must(w.Resolve(spec.NodePortAt("n1", "web", 80), family, "tcp"))
	alone := fmt.Sprintf("tcp . %d", to.Port())
	with := fmt.Sprintf("%s . %s", to.Addr(), alone)
	for _, verdict := range []string{t.elements("service-nodeports")[alone], t.elements("service-ips")[with]} {
		if chain, ok := strings.CutPrefix(verdict, "goto "); ok && t.block("chain", chain) != "" {
			return nil
		}
	}
	return fmt.Errorf("neither map service-nodeports has %s nor map service-ips %s", alone, with)
}

// hairpins wants the pod on the node, and not the other one, among the connections that go back where they come from.
func hairpins(w spec.World, t nftTable, family lab.Family) error {
	for pod, want := range map[string]bool{"a1": true, "a2": false} {
		h := spec.Must(w.Host(pod))
		key := fmt.Sprintf("%[1]s . %[1]s . tcp . 8080", h.Addr(family))
		if _, got := t.elements("hairpin-connections")[key]; got != want {
			return fmt.Errorf("set hairpin-connections has %s: %t, not %t", key, got, want)
		}
	}
	return nil
}

// withoutEndpoints wants a Service without endpoints refused, and one with endpoints on other nodes only dropped.
func withoutEndpoints(w spec.World, n1, n3 nftTable, family lab.Family) error {
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("empty", 80), family, "tcp"))
	local := spec.Must(w.Resolve(spec.NodePortAt("n3", "local", 80), family, "tcp"))
	var err error
	key := fmt.Sprintf("%s . tcp . 80", vip.Addr())
	chain, _ := strings.CutPrefix(n1.elements("no-endpoint-services")[key], "goto ")
	if !strings.Contains(n1.block("chain", chain), "reject") {
		err = fmt.Errorf("map no-endpoint-services does not have %s refused", key)
	}
	alone := fmt.Sprintf("tcp . %d", local.Port())
	if n3.elements("no-endpoint-nodeports")[alone] != "drop" &&
		n3.elements("no-endpoint-services")[fmt.Sprintf("%s . %s", local.Addr(), alone)] != "drop" {
		err = errors.Join(err, fmt.Errorf("n3 has no endpoint of local, but no map no-endpoint-… drops its NodePort %d",
			local.Port()))
	}
	return err
}

// nftTable is the table of an nftables proxier in one family, as nft lists it: what stands between the braces of each
// chain, set and map.
type nftTable map[string]string

func listNFT(ctx context.Context, w spec.World, node string, family lab.Family) nftTable {
	ip := OfFamily(family, "ip", "ip6")
	return parseNFT(OutputOf(ctx, w, node, "nft", "list", "table", ip, "kube-proxy"))
}

// block begins with "chain services {" on a line of its own, and ends with a brace below it.
var nftBlock = regexp.MustCompile(`(?ms)^\t(\w+ \S+) \{\n(.*?)^\t\}$`)

func parseNFT(text string) nftTable {
	t := nftTable{}
	for _, m := range nftBlock.FindAllStringSubmatch(text, -1) {
		t[m[1]] = m[2]
	}
	return t
}

// block is what a chain, set or map consists of; empty if there is none.
func (t nftTable) block(kind, name string) string { return t[kind+" "+name] }

func (t nftTable) setOrMap(name string) string { return t.block("set", name) + t.block("map", name) }

// typeOf is the type of a set or map.
func (t nftTable) typeOf(name string) string {
	_, after, _ := strings.Cut(t.setOrMap(name), "\ttype ")
	kind, _, _ := strings.Cut(after, "\n")
	return kind
}

var (
	nftElements = regexp.MustCompile(`(?s)elements = \{ (.*) \}`)
	nftComment  = regexp.MustCompile(` comment "[^"]*"`)
)

// elements are those of a set or map, with what they lead to.
func (t nftTable) elements(name string) map[string]string {
	m := nftElements.FindStringSubmatch(t.setOrMap(name))
	if m == nil {
		return nil
	}
	all := map[string]string{}
	for _, e := range strings.Split(nftComment.ReplaceAllString(m[1], ""), ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(e), " : ")
		all[key] = value
	}
	return all
}
