// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/viplab/viplab/internal/suite/dice"
)

// change is a kind of change of a state. do changes the state and describes the change. It returns "" if the state has
// nothing to change.
type change struct {
	name string
	do   func(g *generator, s *State) string
}

// changes are all kinds of changes. One that is listed twice is more likely.
var changes = []change{
	{"pod comes", func(g *generator, s *State) string {
		p := g.backend()
		s.Pods = append(s.Pods, p)
		return "pod " + p.Name + " comes"
	}},
	{"pod goes", func(g *generator, s *State) string {
		i := g.pick(s, func(*corev1.Pod) bool { return true })
		if i < 0 {
			return ""
		}
		name := s.Pods[i].Name
		s.Pods = slices.Delete(s.Pods, i, i+1)
		return "pod " + name + " goes"
	}},
	{"pod turns ready or unready", turn}, {"pod turns ready or unready", turn},
	{"pod terminates", terminate}, {"pod terminates", terminate},
	{serviceEdited, edit}, {serviceEdited, edit}, {serviceEdited, edit}, {serviceEdited, edit},
	{"Service goes", func(g *generator, s *State) string {
		if len(s.Services) == 0 {
			return ""
		}
		i := g.IntN(len(s.Services))
		name := s.Services[i].Name
		s.Services = slices.Delete(s.Services, i, i+1)
		return "Service " + name + " goes"
	}},
	{"Service comes", func(g *generator, s *State) string {
		g.remade++
		svc := g.service(fmt.Sprintf("t%d", g.remade))
		s.Services = append(s.Services, svc)
		return "Service " + svc.Name + " comes"
	}},
	{"Service is made anew", func(g *generator, s *State) string {
		if len(s.Services) == 0 {
			return ""
		}
		g.remade++
		i := g.IntN(len(s.Services))
		name := s.Services[i].Name
		s.Services[i] = g.service(name)
		s.Services[i].Annotations = map[string]string{made: fmt.Sprint(g.remade)}
		return "Service " + name + " is made anew"
	}},
	{"slice is rewritten", rewrite}, {"slice is rewritten", rewrite}, {"slice is rewritten", rewrite},
	{"slice goes", func(g *generator, s *State) string {
		if len(s.Slices) == 0 {
			return ""
		}
		i := g.IntN(len(s.Slices))
		name := s.Slices[i].Name
		s.Slices = slices.Delete(s.Slices, i, i+1)
		return "slice " + name + " goes"
	}},
	{"slice moves to another Service", func(g *generator, s *State) string {
		if len(s.Slices) == 0 || len(s.Services) < 2 {
			return ""
		}
		x, svc := dice.OneOf(g.Dice, s.Slices...), dice.OneOf(g.Dice, s.Services...)
		x.Labels = map[string]string{discoveryv1.LabelServiceName: svc.Name}
		return "slice " + x.Name + " moves to " + svc.Name
	}},
}

const serviceEdited = "Service is edited"

func edited(kind string) bool { return kind == serviceEdited }

// editOf returns the kind of a change of a field.
func editOf(field string) string { return serviceEdited + ": " + field }

// changed returns the state after one to three changes.
func (g *generator) changed(s State) State {
	next := s.clone()
	next.Change, next.Kinds = "", nil
	for todo := 1 + g.IntN(2)*g.IntN(3); todo > 0; {
		kind := dice.OneOf(g.Dice, changes...)
		what := kind.do(g, &next)
		if what == "" {
			continue
		}
		next.Kinds = append(next.Kinds, kind.name)
		if name, _, is := strings.Cut(what, " of Service"); is && edited(kind.name) {
			next.Kinds[len(next.Kinds)-1] = editOf(name)
		}
		if todo--; next.Change != "" {
			next.Change += "; "
		}
		next.Change += what
	}
	return next
}

// pick returns the index of one of the backends that is accepts, -1 if there is none.
func (g *generator) pick(s *State, is func(*corev1.Pod) bool) int {
	var found []int
	for i, p := range s.Pods {
		if p.Name != "c1" && is(p) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return -1
	}
	return dice.OneOf(g.Dice, found...)
}

func turn(g *generator, s *State) string {
	i := g.pick(s, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil })
	if i < 0 {
		return ""
	}
	p := s.Pods[i]
	setReady(p, !ready(p))
	return fmt.Sprintf("pod %s ready=%t", p.Name, ready(p))
}

func terminate(g *generator, s *State) string {
	i := g.pick(s, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && ready(p) })
	if i < 0 {
		return ""
	}
	p := s.Pods[i]
	p.DeletionTimestamp = &terminating
	setReady(p, !g.Chance(3))
	return fmt.Sprintf("pod %s terminates, serving=%t", p.Name, ready(p))
}

func edit(g *generator, s *State) string {
	if len(s.Services) == 0 {
		return ""
	}
	svc := dice.OneOf(g.Dice, s.Services...)
	f := dice.OneOf(g.Dice, fields...)
	next := svc.DeepCopy()
	f.set(g.Dice, next)
	normalize(next)
	headless := svc.Spec.ClusterIP == corev1.ClusterIPNone // which gets no address, and its families from its selector
	if f.fixed || next.Spec.ClusterIP != svc.Spec.ClusterIP || headless && f.name == "selector" {
		return ""
	}
	was := f.value(svc)
	*svc = *next
	return fmt.Sprintf("%s of Service %s: %q, was %q", f.name, svc.Name, f.value(svc), was)
}

func rewrite(g *generator, s *State) string {
	if len(s.Slices) == 0 {
		return ""
	}
	i := g.IntN(len(s.Slices))
	x := s.Slices[i]
	j := slices.IndexFunc(s.Services, func(svc *corev1.Service) bool {
		return svc.Name == x.Labels[discoveryv1.LabelServiceName]
	})
	if j < 0 {
		return ""
	}
	ports, labels, addresses := x.Ports, x.Labels, x.AddressType
	*x = *g.slice(*s, s.Services[j], x.Name)
	x.AddressType = addresses // which the API never changes
	if x.Labels = labels; g.Chance(2) {
		x.Ports = ports
	}
	return "slice " + x.Name + " is rewritten"
}
