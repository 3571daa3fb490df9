package keeper_test

import (
	"context"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/proxiers/internal/keeper"
	"github.com/viplab/viplab/proxiers/internal/proxiertest"
	"github.com/viplab/viplab/proxiers/model"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// idle is a mechanism that serves nothing.
type idle struct{}

func (idle) Program(context.Context, *model.State, keeper.Place) error { return nil }
func (idle) Dump(context.Context) ([]byte, error)                      { return []byte("nothing\n"), nil }
func (idle) Remove(context.Context) error                              { return nil }

// TestTakenHealthCheckPort: a health check port that another program has is an Event of its Service, once, in what is
// dumped, and keeps nothing else from being done.
func TestTakenHealthCheckPort(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	other, err := node.Host.Listen(t.Context(), "tcp4", "0.0.0.0:31000")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	k, err := keeper.New(node, keeper.Relayed, nil, []keeper.Mechanism{idle{}})
	if err != nil {
		t.Fatal(err)
	}
	s := proxiertest.Cluster(2, 1)
	for i, svc := range s.Services {
		svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
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
	if c, err := node.Host.Dial(t.Context(), "tcp4", netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:31001")); err != nil {
		t.Errorf("the other health check port: %v", err)
	} else {
		c.Close()
	}
	proxiertest.Stop(t, k)
}
