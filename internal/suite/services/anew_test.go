// SPDX-License-Identifier: Apache-2.0

package services

import (
	"errors"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/internal/suite/services/oracle"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// noLab is a world of no lab, whose Services have the NodePorts of the map.
type noLab struct {
	spec.World
	features  spec.FeatureSet
	nodePorts map[string]bool
}

func (w noLab) Features() spec.FeatureSet { return w.features }

func (w noLab) Resolve(to spec.Target, _ lab.Family, _ string) (netip.AddrPort, error) {
	if !w.nodePorts[to.Service] {
		return netip.AddrPort{}, errors.New("no such port")
	}
	return netip.AddrPort{}, nil
}

// ask returns a question to an address of the Service s.
func ask(kind string, protocol corev1.Protocol, v oracle.Verdict, rule string) question {
	return question{
		to:     door{service: "s", kind: kind, protocol: protocol, addr: netip.MustParseAddrPort("10.96.0.1:80")},
		answer: oracle.Answer{Verdict: v, Rules: []oracle.Rule{{Name: rule}}},
	}
}

// What is left to implementations may only depend on the objects, so it has to be equal when they are made anew. Where
// chance, order or an earlier address decides, it need not be.
func TestUndecidedIsWhatTheStateDecides(t *testing.T) {
	const tcp, udp, sctp = corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP
	dropped := ask("clusterip", tcp, oracle.DroppedOrRefused, "no-endpoints")
	other := dropped
	other.to.service = "other"
	served := ask("clusterip", udp, oracle.Served, "serve")
	mayBe := ask("clusterip", udp, oracle.MayBeServed, "serve")
	all := spec.FeatureSet{}
	for _, f := range needed {
		all[f] = true
	}
	for _, c := range []struct {
		name      string
		questions []question
		lacks     spec.Feature
		want      int
	}{
		{name: "dropped or refused", questions: []question{dropped}, want: 1},
		{name: "ipMode", questions: []question{ask("balancer", tcp, oracle.Open, "ipmode-proxy")}, want: 1},
		{name: "open for another reason", questions: []question{ask("balancer", tcp, oracle.Open, "shared-frontend")}},
		{name: "served", questions: []question{served}},
		{name: "refused", questions: []question{ask("clusterip", tcp, oracle.Refused, "no-endpoints")}},
		{name: "beside a port that is served", questions: []question{served, dropped}, want: 1},
		{name: "beside endpoints that may answer", questions: []question{dropped, mayBe}},
		{name: "an address of two Services", questions: []question{dropped, other}},
		{name: "an address that is gone", questions: []question{ask("gone", tcp, oracle.DroppedOrRefused, "gone")}},
		{name: "elsewhere", questions: []question{ask("elsewhere", tcp, oracle.DroppedOrRefused, "elsewhere")}},
		{name: "SCTP", questions: []question{ask("clusterip", sctp, oracle.DroppedOrRefused, "no-endpoints")}},
		{name: "another proxier's matter", questions: []question{ask("nodeport", tcp, oracle.DroppedOrRefused, "x")},
			lacks: needed["nodeport"]},
	} {
		w := noLab{features: spec.FeatureSet{}}
		for f := range all {
			w.features[f] = f != c.lacks
		}
		if got := new(player).undecided(w, c.questions); len(got) != c.want {
			t.Errorf("%s: %d of %d questions, want %d", c.name, len(got), len(c.questions), c.want)
		}
	}
}

func TestLikenessHoldsApartWhatTheProxierDecides(t *testing.T) {
	for _, c := range []struct {
		seen, then traffic.Outcome
		want       bool
	}{
		{traffic.Reply, traffic.Reply, true},
		{traffic.Reply, traffic.Silence, false},
		{traffic.Refused, traffic.Refused, true},
		{traffic.Refused, traffic.Silence, false},
		{traffic.Silence, traffic.Refused, false},
		{traffic.Silence, traffic.Unreachable, true},
		{traffic.Unreachable, traffic.Silence, true},
	} {
		if got := likeness(c.seen).Allows(c.then); got != c.want {
			t.Errorf("first %v, then %v: allowed %v, want %v", c.seen, c.then, got, c.want)
		}
	}
}

// An answer where none was promised wants an answer again, of any pod.
func TestAnAnswerIsAsGoodFromAnotherPod(t *testing.T) {
	p := &player{now: State{Pods: []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "a1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "a2"}},
	}}}
	row := p.wantAlike(spec.Row{From: "n3"}, traffic.Reply)
	again := spec.Observation{Answer: traffic.Answer{Outcome: traffic.Reply, Greeting: traffic.Greeting{Server: "a2"}}}
	if wrong := row.Judge([]spec.Observation{again}, spec.Facts{}); len(wrong) > 0 {
		t.Errorf("after an answer, an answer of a2 is wrong: %v", wrong)
	}
	again = spec.Observation{Answer: traffic.Answer{Outcome: traffic.Silence}}
	if wrong := row.Judge([]spec.Observation{again}, spec.Facts{}); len(wrong) == 0 {
		t.Error("after an answer, silence is right")
	}
}

// A Service keeps the NodePorts that it had before allocateLoadBalancerNodePorts became false; one made anew has none.
func TestRowsToNodePortsThatAreNotThere(t *testing.T) {
	w := noLab{nodePorts: map[string]bool{"has": true}}
	for _, c := range []struct {
		to   spec.Target
		want bool
	}{
		{spec.Target{Kind: spec.NodePortOf, Service: "has"}, false},
		{spec.Target{Kind: spec.NodePortOf, Service: "has-not"}, true},
		{spec.ClusterIPOf("has-not", 80), false},
	} {
		if got := lacksNodePort(w, spec.Row{To: c.to}); got != c.want {
			t.Errorf("%v: %v, want %v", c.to, got, c.want)
		}
	}
}
