// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

var rulesetNeeds = []spec.Feature{spec.IPTables, spec.ClusterIP, spec.NodePort}

// ruleset returns the scenarios of the shape of what a proxier programs: the chains and maps that introductions to
// Kubernetes show and that people look for when they debug a node. They explain. The proof that a Service works is
// traffic, in the other groups.
func ruleset() []spec.Scenario {
	return slices.Concat(shapes(), deltas(), calico())
}

// shapes are those about what is programmed, in contrast to how it changes.
func shapes() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "rs-ipt-hooks", Needs: rulesetNeeds,
			Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort())},
			Steps: inNAT(hooks),
		},
		{
			ID: "rs-ipt-path", Needs: rulesetNeeds, Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
			Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Service("web", NodePort())},
			Steps: []spec.Step{{
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 5, Servers: []string{"a1"}},
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Times: 3, Servers: []string{"a1"}},
				},
				Check: inTable("nat", path),
			}},
		},
		{
			ID: "rs-ipt-probabilities", Needs: rulesetNeeds,
			Given: []store.Object{
				Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), Service("web"),
				Pod("d1", "n1", App("duo"), TCP(8080)), Pod("d2", "n2", App("duo"), TCP(8080)), Service("duo"),
				Pod("s1", "n1", App("solo"), TCP(8080)), Service("solo"),
			},
			Steps: inNAT(probabilities),
		},
		{
			ID: "rs-ipt-one-sep-per-endpoint", Needs: rulesetNeeds,
			Given: []store.Object{Backend("a1", "n1"), Backend("a2", "n2"), Service("web")},
			Steps: inNAT(oneSEPPerEndpoint),
		},
		{
			ID: "rs-ipt-masq-mark", Needs: rulesetNeeds,
			Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort())},
			Steps: inNAT(masqueradeMark),
		},
		{
			ID: "rs-ipt-off-cluster-mark", Needs: rulesetNeeds,
			Given: []store.Object{Backend("a1", "n1"), Service("web")},
			Steps: inNAT(offClusterMark),
		},
		{
			ID: "rs-ipt-local-policy-chains", Needs: []spec.Feature{spec.IPTables, spec.NodePort, spec.ETPLocal},
			Given: []store.Object{Backend("a1", "n1"), Service("web", NodePort(), ETPLocal())},
			Steps: []spec.Step{{Check: EachFamily(localPolicyChains)}},
		},
		{
			ID:    "rs-ipt-drop-path",
			Needs: []spec.Feature{spec.IPTables, spec.ClusterIP, spec.NodePort, spec.ETPLocal, spec.LoadBalancer},
			Given: []store.Object{
				Backend("a1", "n1"), Service("local", Selecting("web"), NodePort(), ETPLocal()), Service("empty"),
				Service("fenced", Selecting("web"), LoadBalancer(), func(s *corev1.Service) {
					s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "2001:db8:2::/64"}
				}),
			},
			Steps: []spec.Step{{
				Do:    []spec.Action{Ingress("fenced", "203.0.113.14", "2001:db8:113::14")},
				Check: EachFamily(dropPath),
			}},
		},
		{
			ID: "rs-ipt-forward", Needs: append([]spec.Feature{spec.DropInvalid}, rulesetNeeds...),
			Given: []store.Object{Backend("a1", "n1"), Service("web")},
			Steps: []spec.Step{{Check: inTable("filter", forward)}},
		},
		userspacePortals(),
		nftShape(),
	}
}

// check looks at one table of n1 in one family.
type check func(w spec.World, t table, family lab.Family) error

func inNAT(c check) []spec.Step { return []spec.Step{{Check: inTable("nat", c)}} }

func inTable(name string, c check) Check {
	return EachFamily(func(ctx context.Context, w spec.World, family lab.Family) error {
		return c(w, save(ctx, w, "n1", family, name), family)
	})
}

func hooks(_ spec.World, t table, _ lab.Family) error {
	err := t.want([]string{"PREROUTING", "-j KUBE-SERVICES"}, []string{"OUTPUT", "-j KUBE-SERVICES"},
		[]string{"POSTROUTING", "-j KUBE-POSTROUTING"})
	rules := t["KUBE-SERVICES"]
	if len(rules) == 0 || !rules[len(rules)-1].has("--dst-type LOCAL", "-j KUBE-NODEPORTS") {
		err = errors.Join(err, fmt.Errorf("KUBE-SERVICES does not end with a jump to KUBE-NODEPORTS:\n%s",
			t.text("KUBE-SERVICES")))
	}
	return err
}

// path wants each rule on the way, or the several that stand for it, to have matched exactly the connections that were
// made: the nat table sees the first packet of a connection alone.
func path(w spec.World, t table, family lab.Family) error {
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
	nodePort := spec.Must(w.Resolve(spec.NodePortAt("n1", "web", 80), family, "tcp"))
	svc, ext := svcChain(w, "KUBE-SVC-", "web"), svcChain(w, "KUBE-EXT-", "web")
	seps := t.endpoints(svc)
	if len(seps) == 0 {
		return fmt.Errorf("%s leads to no endpoint:\n%s", svc, t.text(svc))
	}
	sep := seps[0].Target()
	var errs []error
	for _, hop := range []struct {
		chain string
		parts []string
		want  int
	}{
		{"KUBE-SERVICES", []string{"-d " + prefix(vip.Addr()), "--dport 80", "-j " + svc}, 5},
		{"KUBE-NODEPORTS", []string{"--dport " + strconv.Itoa(int(nodePort.Port())), "-j " + ext}, 3},
		{ext, []string{"-j KUBE-MARK-MASQ"}, 3},
		{ext, []string{"-j " + svc}, 3},
		{svc, []string{"-j " + sep}, 8},
		{sep, []string{"-j DNAT"}, 8},
	} {
		_, err := t.find(hop.chain, hop.parts...)
		if matched := t.matched(hop.chain, hop.parts...); err == nil && matched != hop.want {
			err = fmt.Errorf("%s: its rules with %q have matched %d connections, not %d; it has\n%s",
				hop.chain, strings.Join(hop.parts, " "), matched, hop.want, t.text(hop.chain))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func probabilities(w spec.World, t table, _ lab.Family) error {
	var errs []error
	for service, want := range map[string][]float64{"web": {1.0 / 3, 1.0 / 2, 1}, "duo": {1.0 / 2, 1}, "solo": {1}} {
		var got []float64
		for _, r := range t.endpoints(svcChain(w, "KUBE-SVC-", service)) {
			got = append(got, r.probability())
		}
		if !slices.EqualFunc(got, want, func(a, b float64) bool { return math.Abs(a-b) < 1e-4 }) {
			errs = append(errs, fmt.Errorf("%s: its endpoints are taken with probabilities %v, not %v", service, got, want))
		}
	}
	return errors.Join(errs...)
}

// endpoints returns the rules of a Service's chain that lead to endpoints.
func (t table) endpoints(chain string) (all []rule) {
	for _, r := range t[chain] {
		if strings.HasPrefix(r.Target(), "KUBE-SEP-") {
			all = append(all, r)
		}
	}
	return all
}

// probability is that of the statistic match, 1 without one, NaN where it cannot be read.
func (r rule) probability() float64 {
	_, after, ok := strings.Cut(string(r.Rule), "--probability ")
	if !ok {
		return 1
	}
	number, _, _ := strings.Cut(after, " ")
	p, err := strconv.ParseFloat(number, 64)
	if err != nil || !r.has("-m statistic", "--mode random") {
		return math.NaN()
	}
	return p
}
