package userspace

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/kube"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// testNode is a node in a namespace that has nothing but a loopback device.
func testNode(t testing.TB, families ...lab.Family) spec.Node {
	t.Helper()
	ns, err := netns.New("n1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	lo, err := ns.Netlink().LinkByName("lo")
	if err == nil {
		err = ns.Netlink().LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	return spec.Node{
		Name:     "n1",
		Host:     &lab.Node{Host: lab.Host{NS: ns}},
		Families: families,
		ClusterCIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/48"),
		},
		StateDir: t.TempDir(),
		Log:      slog.New(slog.DiscardHandler),
	}
}

// start starts the proxier on a node, or skips the test where it cannot run.
func start(t testing.TB, node spec.Node) *instance {
	t.Helper()
	if err := New().Usable(t.Context()); err != nil {
		t.Skip(err)
	}
	in, err := New().Start(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(in.(*instance)) })
	return in.(*instance)
}

// kill does to an instance what SIGKILL does to a process: its sockets are closed, and its rules stay.
func kill(in *instance) {
	_ = in.Kill(context.Background()) // closing sockets that are closed already is none's concern
}

type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

func apply(t failer, in *instance, s *kube.Snapshot) {
	if err := in.Apply(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}

func stop(t failer, in *instance) {
	if err := in.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// cluster makes n Services with endpoints each, in both families.
func cluster(n, endpoints int) *kube.Snapshot {
	s := &kube.Snapshot{}
	for i := range n {
		svc, sl := simple(i, endpoints, lab.V4)
		_, sl6 := simple(i, endpoints, lab.V6)
		s.Services = append(s.Services, svc)
		s.EndpointSlices = append(s.EndpointSlices, sl, sl6)
	}
	return s
}

func simple(i, endpoints int, f lab.Family) (*corev1.Service, *discoveryv1.EndpointSlice) {
	name := fmt.Sprintf("svc-%05d", i)
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "test", Name: name},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  fmt.Sprintf("10.96.%d.%d", i/250, i%250+1),
			ClusterIPs: []string{fmt.Sprintf("10.96.%d.%d", i/250, i%250+1), fmt.Sprintf("fd00:10:96::%x", i+1)},
			Ports:      []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	sl := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "test", Name: fmt.Sprintf("%s-%s", name, f), Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080))}},
	}
	pattern := "10.244.%d.%d"
	if f == lab.V6 {
		sl.AddressType, pattern = discoveryv1.AddressTypeIPv6, "fd00:10:244:%x::%x"
	}
	for e := range endpoints {
		k := i*endpoints + e
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf(pattern, k/250%250, k%250+1)}})
	}
	return svc, sl
}

func ptr[T any](v T) *T { return &v }
