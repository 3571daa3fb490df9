// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/dice"
)

// Random returns a case. The same seed and number give the same case. One of three cases is a single state; others have
// up to four changes. Something happens to a proxier during a change in one of eight of these.
func Random(seed, number uint64) Case {
	g := generator{Dice: dice.New(seed, number)}
	s := g.state()
	c := Case{ID: fmt.Sprintf("random-%d-%d", seed, number), States: []State{s}}
	for range max(0, g.IntN(6)-1) {
		s = g.changed(s)
		c.States = append(c.States, s)
	}
	if g.Chance(8) {
		g.live(&c)
	}
	return c
}

// generator generates the objects of a case.
type generator struct {
	dice.Dice
	remade int
	pods   int
}

// state returns a state to begin with.
func (g *generator) state() State {
	var s State
	for range g.IntN(5) {
		s.Pods = append(s.Pods, g.backend())
	}
	s.Pods = append(s.Pods, client(g))
	for i := range 1 + g.IntN(3) {
		svc := g.service(fmt.Sprintf("s%d", i+1))
		if g.Chance(40) {
			svc.Name = longName(svc.Name)
		}
		s.Services = append(s.Services, svc)
	}
	for i, svc := range s.Services {
		if len(svc.Spec.Selector) > 0 && !g.Chance(8) {
			continue
		}
		for j := range 1 + g.IntN(2) {
			s.Slices = append(s.Slices, g.slice(s, svc, fmt.Sprintf("s%d-%d", i+1, j+1)))
		}
	}
	return s
}

func node(d dice.Dice) string { return dice.OneOf(d, "n1", "n2", "n3") }

// client returns a pod that serves nothing.
func client(g *generator) *corev1.Pod {
	p := pod("c1", node(g.Dice), "")
	p.Spec.Containers[0].Ports = nil
	return p
}

// backend returns a pod that serves, ready or not.
func (g *generator) backend() *corev1.Pod {
	g.pods++
	p := pod(fmt.Sprintf("a%d", g.pods), node(g.Dice), dice.OneOf(g.Dice, "web", "web", "web", "other"))
	named := dice.OneOf[int32](g.Dice, 8080, 8080, 8081)
	for i := range p.Spec.Containers[0].Ports {
		if c := &p.Spec.Containers[0].Ports[i]; c.ContainerPort == named {
			c.Name = targets[c.Protocol]
		}
	}
	setReady(p, !g.Chance(6))
	return p
}

// pod returns a pod that serves the ports 8080 and 8081 with all protocols.
func pod(name, node, app string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "echo", Image: "echo"}}},
	}
	for _, number := range []int32{8080, 8081} {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports,
				corev1.ContainerPort{ContainerPort: number, Protocol: protocol})
		}
	}
	return p
}

func (g *generator) service(name string) *corev1.Service {
	s := &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	for _, f := range fields {
		f.set(g.Dice, s)
	}
	normalize(s)
	return s
}

// slice returns a hand-written slice, mostly for the Service.
func (g *generator) slice(s State, svc *corev1.Service, name string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: g.owner(s, svc)},
	}
	if g.Chance(30) {
		out.AddressType = discoveryv1.AddressTypeFQDN
	}
	for _, p := range svc.Spec.Ports {
		if g.Chance(5) {
			continue
		}
		port := discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol),
			Port: ptr.To(dice.OneOf[int32](g.Dice, 8080, 8080, 8081))}
		if p.Name == "" && g.Chance(2) {
			port.Name = nil
		}
		if p.Protocol == corev1.ProtocolTCP && g.Chance(2) {
			port.Protocol = nil
		}
		if g.Chance(50) {
			port.Port = nil
		}
		out.Ports = append(out.Ports, port)
	}
	shape := g.IntN(6) // 0: hints for zones, 1: for nodes, 2: for some
	for _, p := range s.Pods {
		if p.Name != "c1" && !g.Chance(4) {
			out.Endpoints = append(out.Endpoints, g.endpoint(p, shape))
		}
	}
	if g.Chance(50) {
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: []string{"239.1.2.3"}},
			discoveryv1.Endpoint{Addresses: []string{"ff0e::5"}})
	}
	return out
}

func (g *generator) owner(s State, svc *corev1.Service) map[string]string {
	switch {
	case g.Chance(20):
		return nil
	case g.Chance(20):
		svc = dice.OneOf(g.Dice, s.Services...)
	}
	return map[string]string{discoveryv1.LabelServiceName: svc.Name}
}

// endpoint returns an endpoint with any conditions, mostly ready.
func (g *generator) endpoint(p *corev1.Pod, hints int) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{p.Name}, NodeName: ptr.To(p.Spec.NodeName)}
	switch g.IntN(4) {
	case 0, 1:
		if g.Chance(2) {
			e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true),
				Terminating: ptr.To(false)}
		}
	case 2: // terminating
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: dice.OneOf(g.Dice, ptr.To(true),
			ptr.To(true), ptr.To(false), nil), Terminating: ptr.To(true)}
	default:
		e.Conditions = discoveryv1.EndpointConditions{Ready: maybe(g.Dice), Serving: maybe(g.Dice),
			Terminating: maybe(g.Dice)}
	}
	if g.Chance(12) {
		e.NodeName = nil
	}
	if g.Chance(15) {
		e.Addresses = append(e.Addresses, "c1")
	}
	e.Hints = g.hints(p.Spec.NodeName, hints == 0 || hints == 2 && g.Chance(2), hints == 1 || hints == 2 && g.Chance(4))
	return e
}

// hints returns hints for an endpoint, mostly for its own zone or node alone. Without either, it returns nil.
func (g *generator) hints(node string, forZones, forNodes bool) *discoveryv1.EndpointHints {
	if !forZones && !forNodes {
		return nil
	}
	h := &discoveryv1.EndpointHints{}
	if forZones {
		zone := map[bool]string{true: "east", false: "west"}[node == "n1"]
		for _, name := range g.oneOrTwo(zone, zone, "east", "west", "north") {
			h.ForZones = append(h.ForZones, discoveryv1.ForZone{Name: name})
		}
	}
	if forNodes {
		for _, name := range g.oneOrTwo(node, node, "n1", "n3") {
			h.ForNodes = append(h.ForNodes, discoveryv1.ForNode{Name: name})
		}
	}
	return h
}

// oneOrTwo returns one of the names, or two different ones.
func (g *generator) oneOrTwo(names ...string) []string {
	out := []string{dice.OneOf(g.Dice, names...), dice.OneOf(g.Dice, names...)}
	if !g.Chance(4) {
		out = out[:1]
	}
	return slices.Compact(out)
}

func maybe(d dice.Dice) *bool { return dice.OneOf(d, nil, ptr.To(true), ptr.To(false)) }

// terminating is the deletion timestamp of pods that terminate. Its value has no meaning.
var terminating = metav1.NewTime(time.Unix(0, 0).UTC())
