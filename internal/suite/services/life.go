// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/internal/suite/dice"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// Life is what happens to a node, mostly to its proxier, while the cluster changes.
type Life struct {
	Event string `json:"event"`
	Node  string `json:"node"`
}

// event is something that happens to a proxier or its node. begin makes it happen before the changes, and end ends it
// after them. Errors of the harness are HarnessErrors; others are the proxier's.
type event struct {
	name string
	// of is what it happens to: "proxier" or "node".
	of    string
	begin func(ctx context.Context, w spec.World, node string) (end func() error, err error)
}

// events are all kinds of events.
var events = []event{
	{"restarts", "proxier", func(ctx context.Context, w spec.World, node string) (func() error, error) {
		c := w.ProxierControl(node)
		return func() error { return fault(c.Start(ctx)) }, c.Kill(ctx)
	}},
	{"loses its watches", "proxier", func(ctx context.Context, w spec.World, node string) (func() error, error) {
		resume, err := w.ProxierControl(node).BreakWatches(ctx)
		return func() error { resume(); return nil }, err
	}},
	{"cannot write", "proxier", func(ctx context.Context, w spec.World, node string) (func() error, error) {
		refusal, err := w.ProxierControl(node).RefuseWrites(ctx)
		return func() error { return errors.Join(refused(ctx, w, refusal), fault(refusal.End())) }, err
	}},
	{"gets another zone", "node", func(ctx context.Context, w spec.World, node string) (func() error, error) {
		zone := map[string]string{"east": "west", "west": "east"}[zoneOf(w, node)]
		return func() error { return nil }, fixture.Zone(node, zone).Run(ctx, w)
	}},
	{"loses its zone", "node", func(ctx context.Context, w spec.World, node string) (func() error, error) {
		return func() error { return nil }, fixture.Zone(node, "").Run(ctx, w)
	}},
}

func zoneOf(w spec.World, node string) string {
	if n, ok := store.Get[*corev1.Node](w.Store(), "", node); ok {
		return n.Labels[corev1.LabelTopologyZone]
	}
	return ""
}

// live gives a case an event in one of its changes.
func (g *generator) live(c *Case) {
	if len(c.States) < 2 {
		return
	}
	s := &c.States[1+g.IntN(len(c.States)-1)]
	s.Life = &Life{Event: dice.OneOf(g.Dice, events...).name, Node: node(g.Dice)}
}

// event returns the event of the name, or one without a name.
func (l *Life) event() (found event) {
	if i := slices.IndexFunc(events, func(e event) bool { return e.name == l.Event }); i >= 0 {
		found = events[i]
	}
	return found
}

// during makes changes while the event lasts.
func (l *Life) during(ctx context.Context, w spec.World, change func() error) error {
	if l == nil {
		return change()
	}
	end, err := l.event().begin(ctx, w, l.Node)
	if err != nil {
		return fault(err)
	}
	return errors.Join(change(), end())
}

func (l *Life) String() string {
	of := "node"
	if l.event().of != of {
		of = "the proxier of"
	}
	return fmt.Sprintf("%s %s %s meanwhile", of, l.Node, l.Event)
}

// kind is the event as a kind of change, for the coverage.
func (l *Life) kind() string { return l.event().of + " " + l.Event }

// refused returns when writes of every family have been refused, or an error if the proxier does not try to write. A
// Service of its own, which stays, makes it write: the other changes may concern no rule.
func refused(ctx context.Context, w spec.World, refusal spec.Refusal) error {
	err := w.Apply(&corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: "refused"},
		Spec: corev1.ServiceSpec{IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if err != nil {
		return fault(err)
	}
	return fixture.Eventually(ctx, func(context.Context) error {
		for _, f := range w.Lab().Stack().Families() {
			if refusal.Writes(f) == 0 {
				return fmt.Errorf("the proxier has not tried to write rules for %s", f)
			}
		}
		return nil
	})
}
