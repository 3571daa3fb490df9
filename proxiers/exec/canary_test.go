// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	"github.com/viplab/viplab/suite/spec"
)

// Canaries and pods change nothing that has to be confirmed. A Service that has come and gone does: the program may
// have programmed its coming alone.
func TestUnchangedSince(t *testing.T) {
	s := store.New(store.Config{})
	c := &canaries{store: s}
	apply := func(objects ...store.Object) uint64 {
		t.Helper()
		must(t, s.Apply(objects...))
		return s.Snapshot().Revision
	}
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	canary := service("canary-1")
	canary.Namespace = CanaryNamespace
	apply(namespace("default"), namespace(CanaryNamespace))
	changed := apply(service("web"))
	early := s.Snapshot()
	for _, step := range []struct {
		change  func()
		changes bool
	}{
		{func() { apply(canary) }, false},
		{func() { apply(namespace("other")) }, false},
		{func() {
			apply(service("passing"))
			must(t, s.Delete(store.KindService, "default", "passing"))
		}, true},
		{func() { must(t, s.Delete(store.KindService, CanaryNamespace, "canary-1")) }, false},
	} {
		step.change()
		now := s.Snapshot()
		if step.changes {
			changed = now.Revision
		}
		if since := c.unchangedSince(now); since != changed {
			t.Errorf("the state of revision %d is unchanged since %d, want %d", now.Revision, since, changed)
		}
	}
	if since := c.unchangedSince(early); since != early.Revision {
		t.Errorf("an early state, of revision %d, is unchanged since %d", early.Revision, since)
	}
}

// TestAFamilyIsAskedUntilItAnswers: a family that has answered is not asked again. Where a proxier takes the servers in
// turn and one is out of reach, each family answers every second time, and perhaps never both at once.
func TestAFamilyIsAskedUntilItAnswers(t *testing.T) {
	g := &generation{targets: []netip.AddrPort{
		netip.MustParseAddrPort("10.96.0.1:1025"), netip.MustParseAddrPort("[fd00::1]:1025"),
	}}
	answered := []lab.Family{lab.V4, lab.V6}
	node := spec.Node{Name: "n1", Families: answered} // without a host, so a probe would panic
	if err := g.ask(t.Context(), node, traffic.Probe{}, &answered); err != nil || len(answered) != 2 {
		t.Errorf("%v: %v", answered, err)
	}
}
