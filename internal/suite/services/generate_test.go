// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/suite/spec"
)

// paper is a world without a network: it has the store alone, and gives each pod an address.
type paper struct {
	spec.World
	store *store.Store
	next  int
}

func newPaper(t *testing.T, families ...corev1.IPFamily) *paper {
	t.Helper()
	ranges := map[corev1.IPFamily]netip.Prefix{corev1.IPv4Protocol: netip.MustParsePrefix("10.96.0.0/16"),
		corev1.IPv6Protocol: netip.MustParsePrefix("fd00:10:96::/112")}
	var c store.Config
	for _, f := range families {
		c.ServiceCIDRs = append(c.ServiceCIDRs, ranges[f])
	}
	p := &paper{store: store.New(c)}
	for i, n := range []string{"n1", "n2", "n3"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.168.7.1%d", i)}}
		if err := p.store.Apply(node); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.store.Apply(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "case"}}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *paper) Store() *store.Store { return p.store }
func (p *paper) Namespace() string   { return "case" }

func (p *paper) Apply(objects ...store.Object) error {
	for _, o := range objects {
		o.SetNamespace("case")
	}
	return p.store.Apply(objects...)
}

// Settle gives new pods addresses and makes them ready.
func (p *paper) Settle(context.Context) error {
	for _, pod := range p.store.Snapshot().Pods {
		if len(pod.Status.PodIPs) > 0 {
			continue
		}
		p.next++
		err := store.UpdateStatus(p.store, pod.Namespace, pod.Name, func(pod *corev1.Pod) {
			pod.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.244.1.%d", p.next)}, {IP: fmt.Sprintf("fd00:10:244::%d", p.next)}}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *paper) pod(name string) (out []netip.Addr) {
	pod, ok := store.Get[*corev1.Pod](p.store, "case", name)
	if !ok {
		return nil
	}
	for _, ip := range pod.Status.PodIPs {
		out = append(out, netip.MustParseAddr(ip.IP))
	}
	return out
}

func playOnPaper(t *testing.T, c Case, families ...lab.Family) {
	t.Helper()
	var ips []corev1.IPFamily
	for _, f := range families {
		ips = append(ips, corev1.IPFamily("IP"+f.String()))
	}
	w := newPaper(t, ips...)
	p := &player{c: c, place: place{families: families, pod: w.pod}}
	var before State
	for i, s := range c.States {
		s.Life = nil // there are no proxiers
		if err := p.make(t.Context(), w, before, s); err != nil {
			text, _ := json.MarshalIndent(s, "", " ")
			t.Fatalf("%s, state %d: %v\n%s", c.ID, i+1, err, text)
		}
		before = s
	}
}

func TestGeneratedStatesAreValid(t *testing.T) {
	for i := range 120 {
		c := Random(uint64(7), uint64(i))
		playOnPaper(t, c, lab.V4)
		playOnPaper(t, c, lab.V6)
		playOnPaper(t, c, lab.V4, lab.V6)
	}
}

func TestTheSameSeedGivesTheSameCase(t *testing.T) {
	for i := range 20 {
		one, _ := json.Marshal(Random(3, uint64(i)))
		other, _ := json.Marshal(Random(3, uint64(i)))
		if string(one) != string(other) {
			t.Fatalf("case %d: %s\n%s", i, one, other)
		}
	}
}

// Every event of a proxier's life is generated, in a change and never in the first state.
func TestProxiersLive(t *testing.T) {
	seen := map[string]bool{}
	for number := range uint64(400) {
		for i, s := range Random(1, number).States {
			if s.Life == nil {
				continue
			}
			if i == 0 || s.Life.event().begin == nil || s.Life.Node == "" {
				t.Errorf("case %d, state %d: %+v", number, i+1, s.Life)
			}
			seen[s.Life.Event] = true
		}
	}
	if len(seen) != len(events) {
		t.Errorf("generated %v of %d events", seen, len(events))
	}
}
