// SPDX-License-Identifier: Apache-2.0

package proxiertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

// policyRow is policies, and who reaches the pod x/a on which protocols and ports with them.
type policyRow struct {
	name     string
	policies []string
	want     []string
}

// reached returns some ports of x/a, comma-separated, from several pods.
func reached(ports string, from ...string) []string {
	var all []string
	for _, f := range from {
		for p := range strings.SplitSeq(ports, ",") {
			all = append(all, f+" "+p)
		}
	}
	return all
}

const allPorts = "tcp/80,tcp/81,udp/80,udp/81"

const (
	ingressOfA = "metadata: {namespace: x, name: p}\nspec:\n  podSelector: {matchLabels: {pod: a}}\n  ingress:\n"
	egressOfY  = "metadata: {namespace: 'y', name: p}\nspec:\n  podSelector: {}\n  policyTypes: [Egress]\n  egress:\n"
)

// policyRows are few: the suite of static cases judges enforcers, and these say at once which part of one is broken.
var policyRows = []policyRow{
	{"none", nil, reached(allPorts, "x/b", "y/a", "x/c", "y/b")},
	{"deny", []string{"metadata: {namespace: x, name: p}\nspec: {podSelector: {}}"}, nil},
	{"own namespace", []string{ingressOfA + "  - from: [{podSelector: {}}]"}, reached(allPorts, "x/b", "x/c")},
	{"port range", []string{ingressOfA + "  - ports: [{port: 70, endPort: 80}]"},
		reached("tcp/80", "x/b", "y/a", "x/c", "y/b")},
	{"all of UDP", []string{ingressOfA + "  - ports: [{protocol: UDP}]"},
		reached("udp/80,udp/81", "x/b", "y/a", "x/c", "y/b")},
	{"peer and port", []string{ingressOfA +
		"  - from: [{namespaceSelector: {matchLabels: {ns: 'y'}}, podSelector: {matchLabels: {pod: b}}}]\n    ports: " +
		"[{port: 81, protocol: UDP}]"}, reached("udp/81", "y/b")},
	{"block", []string{ingressOfA + "  - from: [" +
		"{ipBlock: {cidr: 0.0.0.0/0, except: [10.244.2.0/24, 10.244.2.3/32]}}, " +
		"{ipBlock: {cidr: '::/0', except: ['fd00:10:244:2::/64']}}]"}, reached(allPorts, "x/b", "y/a")},
	{"IPv6 alone", []string{ingressOfA + "  - from: [{ipBlock: {cidr: '::/0'}}]\n    ports: [{port: 80}]"},
		[]string{"x/b tcp/80 v6", "x/c tcp/80 v6", "y/a tcp/80 v6", "y/b tcp/80 v6"}},
	{"union", []string{ingressOfA + "  - from: [{podSelector: {}}]\n    ports: [{port: 80}]",
		"metadata: {namespace: x, name: q}\nspec:\n  podSelector: {}\n  ingress:\n" +
			"  - from: [{podSelector: {matchLabels: {pod: c}}}]\n    ports: [{port: 81}]"},
		[]string{"x/b tcp/80", "x/c tcp/80", "x/c tcp/81"}},
	{"egress of others", []string{egressOfY +
		"  - ports: [{port: 81}]\n    to: [{namespaceSelector: {}, podSelector: {matchLabels: {pod: a}}}]"},
		append(reached(allPorts, "x/b", "x/c"), reached("tcp/81", "y/a", "y/b")...)},
	{"egress and ingress", []string{egressOfY + "  - {}",
		"metadata: {namespace: x, name: p}\nspec: {podSelector: {}}"}, nil},
	{"many ports", []string{ingressOfA + "  - ports: [" + strings.Join(manyPorts(), ", ") + "]"},
		reached("tcp/81", "x/b", "y/a", "x/c", "y/b")},
}

func manyPorts() []string {
	var all []string
	for p := range 20 {
		all = append(all, fmt.Sprintf("{port: %d}", 1000+2*p))
	}
	return append(all, "{port: 81}")
}

// PolicyTraffic sends packets through worlds with policies.
func PolicyTraffic(t *testing.T, p spec.Proxier, networks ...lab.PodNetwork) {
	for _, pods := range networks {
		t.Run(pods.String(), func(t *testing.T) {
			w := NewPolicyWorld(t, p, lab.Topology{Stack: lab.Dual, PodNetwork: pods, Overlay: lab.Direct})
			for _, row := range policyRows {
				var dump strings.Builder
				var policies []*networkingv1.NetworkPolicy
				for _, manifest := range row.policies {
					policies = append(policies, Policy(t, manifest))
				}
				w.Apply(t, Policies(policies...))
				slices.Sort(row.want)
				if got := w.Reach(t, "x/a"); !slices.Equal(got, row.want) {
					_ = w.Instances[0].Dump(t.Context(), &dump)
					t.Errorf("%s: reached by\n%s\nwant\n%s\n%s", row.name, strings.Join(got, "\n"),
						strings.Join(row.want, "\n"), dump.String())
				}
			}
		})
	}
}
