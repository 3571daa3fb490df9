// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/model"
	"github.com/viplab/viplab/suite/spec"
)

// picky is a mechanism that serves no state in which there is a Service of these names, and counts its tries.
type picky struct {
	idle
	bad    map[string]bool
	tries  int
	served []string
}

func (p *picky) Program(_ context.Context, state *model.State, _ Place) error {
	p.tries++
	p.served = nil
	for _, s := range state.Services {
		if p.bad[s.Name] {
			return fmt.Errorf("%s is not to my taste", s.Name)
		}
		p.served = append(p.served, s.Name)
	}
	return nil
}

// TestBadServices: an Event reports a Service that cannot be served, which does not block the others, whether it was
// there from the start or comes later.
func TestBadServices(t *testing.T) {
	m := &picky{bad: map[string]bool{"svc-00002": true, "svc-00013": true, "svc-00041": true}}
	k := start(t, m, proxiertest.UpNode(t, lab.V4))
	all := proxiertest.Cluster(50, 1)
	few := *all
	few.Services = all.Services[:40]
	for _, step := range []struct {
		state    *store.Snapshot
		services int
		refused  string
		tries    int // at the most
	}{
		{&few, 38, "svc-00002 svc-00013", 30},
		{&few, 38, "svc-00002 svc-00013", 1},
		{all, 47, "svc-00002 svc-00013 svc-00041", 15},
		{&few, 38, "svc-00002 svc-00013 svc-00041", 1},
	} {
		m.tries = 0
		proxiertest.Apply(t, k, step.state)
		if len(m.served) != step.services || m.tries > step.tries {
			t.Errorf("%d Services are served, not %d, after %d tries: %v", len(m.served), step.services, m.tries, m.served)
		}
		var dump strings.Builder
		if err := k.Dump(t.Context(), &dump); err != nil {
			t.Fatal(err)
		}
		event := regexp.MustCompile(`(?m)^# Event \S+ Warning Service test/(\S+) FailedToProgram: not served on node n1 by IPv4, .* is not to my taste$`)
		var refused []string
		for _, m := range event.FindAllStringSubmatch(dump.String(), -1) {
			refused = append(refused, m[1])
		}
		slices.Sort(refused)
		if got := strings.Join(refused, " "); got != step.refused {
			t.Errorf("refused %s, want %s:\n%s", got, step.refused, dump.String())
		}
	}
	again := *all
	again.Services = slices.Clone(all.Services)
	again.Services[41] = again.Services[41].DeepCopy()
	again.Services[41].Spec.Ports[0].Port++
	delete(m.bad, "svc-00041")
	proxiertest.Apply(t, k, &again)
	if len(m.served) != 48 || !slices.Contains(m.served, "svc-00041") {
		t.Errorf("a Service that is good now is not among the %d that are served", len(m.served))
	}
}

// TestWorstCase: when nothing can be served, that is an error, and no Service's fault.
func TestWorstCase(t *testing.T) {
	s := proxiertest.Cluster(100, 1)
	m := &picky{bad: map[string]bool{}}
	for _, svc := range s.Services {
		m.bad[svc.Name] = true
	}
	k := start(t, m, proxiertest.UpNode(t, lab.V4))
	if err := k.Apply(t.Context(), s); err == nil || m.tries > 200 || len(k.events.lines()) > 0 {
		t.Errorf("%v after %d tries, and %q", err, m.tries, k.events.lines())
	}
}

func TestMain(m *testing.M) { sandbox.Main(m) }

// idle is a mechanism that serves nothing.
type idle struct{}

func (idle) Program(context.Context, *model.State, Place) error { return nil }
func (idle) Dump(context.Context) ([]byte, error)               { return []byte("nothing\n"), nil }
func (idle) Remove(context.Context) error                       { return nil }
func (idle) Release() error                                     { return nil }

// start starts a proxier with a mechanism on a node.
func start(t *testing.T, m Mechanism, node spec.Node) *instance {
	t.Helper()
	in, err := New(Definition{
		Name: t.Name(), Relays: true,
		Probe: func(context.Context, *netns.NS, string, lab.Family) error { return nil },
		New:   func(context.Context, Site) (Mechanism, error) { return m, nil },
	}).Start(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	return in.(*instance)
}

// TestTakenHealthCheckPort: a health check port that another program has is an Event of its Service, once, in what is
// dumped, and keeps nothing else from being done.
func TestTakenHealthCheckPort(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	other, err := node.Host.Listen(t.Context(), "tcp4", "0.0.0.0:31000")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	k := start(t, idle{}, node)
	s := proxiertest.Cluster(2, 1)
	for i, svc := range s.Services {
		svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer,
			corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.HealthCheckNodePort = int32(31000 + i)
	}
	proxiertest.Apply(t, k, s)
	proxiertest.Apply(t, k, s)
	var dump strings.Builder
	if err := k.Dump(t.Context(), &dump); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^# Event \d\d:\d\d:\d\d Warning Service test/svc-00000 FailedToStartServiceHealthcheck: ` +
		`the health check port 31000 is not served on node n1: .*address already in use.*\n# IPv4\nnothing\n$`)
	if !want.MatchString(dump.String()) {
		t.Errorf("dumped\n%s", dump.String())
	}
	if c, err := node.Host.Dial(t.Context(), "tcp4", netip.AddrPort{},
		netip.MustParseAddrPort("127.0.0.1:31001")); err != nil {
		t.Errorf("the other health check port: %v", err)
	} else {
		c.Close()
	}
	proxiertest.Stop(t, k)
}
