// SPDX-License-Identifier: Apache-2.0

package endpoints

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func targetPortVariants() spec.Scenario {
	return spec.Scenario{
		ID: "ep-target-port-variants", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("a1", "n1", App("web"), Named("http", 8080), TCP(8181)),
			Pod("a2", "n2", App("web"), Named("http", 9090), TCP(8181)),
			Pod("a3", "n3", App("web"), sidecar("http", 7070), TCP(8181)),
			Service("web", TargetNamed(80, "http")), Service("numbered", Selecting("web"), Port(80, 8181)),
		},
		Steps: []spec.Step{
			{Name: "by name and by number", Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a2", "a3"}, Even: true},
				{From: "c1", To: spec.ClusterIPOf("numbered", 80), Times: 6, Servers: []string{"a1", "a2", "a3"}, Port: 8181},
			}},
			{
				Name: "from name to number and back",
				Do:   []spec.Action{Edit("web", target(intstr.FromInt(8181))), Edit("numbered", target(intstr.FromString("http")))},
				Rows: []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Times: 6, Servers: []string{"a1", "a2", "a3"}, Port: 8181},
					{From: "c1", To: spec.ClusterIPOf("numbered", 80), Servers: []string{"a1", "a2", "a3"}, Even: true},
				},
			},
		},
	}
}

// sidecar is an init container that is restarted, which is one that runs on beside the others (KEP-753).
func sidecar(name string, port int32) PodOption {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
			Name: "sidecar", Image: "echo", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
			Ports: []corev1.ContainerPort{{Name: name, ContainerPort: port}},
		})
	}
}

func target(to intstr.IntOrString) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = to }
}

// deadBackend drops the packets to one pod and gives another a closed port, while both are ready.
func deadBackend() spec.Scenario {
	return spec.Scenario{
		ID: "ep-dead-backend-no-retry", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web"),
			Backend("b1", "n1", App("shut")), Pod("b2", "n2", App("shut")), Service("shut"),
		},
		Steps: []spec.Step{{
			Do: []spec.Action{dead("a2")},
			Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", 80), Unless: spec.Relays, Want: spec.Reply | spec.Silence,
					Servers: []string{"a1"}, Even: true},
				{From: "c1", To: spec.ClusterIPOf("shut", 80), Unless: spec.Relays, Want: spec.Reply | spec.Refused,
					Servers: []string{"b1"}, Even: true},
				{From: "c1", To: spec.ClusterIPOf("web", 80), If: spec.Relays, Times: 2, Servers: []string{"a1"}},
				{From: "c1", To: spec.ClusterIPOf("shut", 80), If: spec.Relays, Times: lifecycleDraws, Servers: []string{"b1"}},
			},
		}},
	}
}

// dead makes a pod deaf to TCP. It goes on to answer echo requests, which prove silence.
func dead(pod string) spec.Action {
	return spec.Action{Name: "pod " + pod + " no longer answers", Run: func(ctx context.Context, w spec.World) error {
		_, err := w.Run(ctx, pod, "nft",
			`table inet dead { chain in { type filter hook input priority 0; meta l4proto tcp drop; }; }`)
		return err
	}}
}

// deleteRecreate lets one Service come back as it was and another with other addresses and ports. What is allocated
// depends on names, so a Service that is deleted and made again gets what it had.
func deleteRecreate() spec.Scenario {
	return spec.Scenario{
		ID: "svc-delete-recreate", NodePorts: []uint16{30052, 30053}, Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1", UDP(8080)), Backend("a2", "n2", App("moved")), recreated(),
		},
		Steps: []spec.Step{
			{
				Name: "both there", Do: []spec.Action{ApplyAt(Service("moved", NodePort(), NodePorts(30052)), "10.96.0.201",
					"fd00:10:96::c9")},
				Rows: append(recreatedFlows(spec.Row{Servers: []string{"a1"}}), []spec.Row{
					{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}},
					{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "open", Servers: []string{"a1"}},
					{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}},
					{From: "c1", To: spec.AddrAt("10.96.0.201", "fd00:10:96::c9", 80), Servers: []string{"a2"}},
					{From: "client", To: spec.HostAt("n1", 30052), Servers: []string{"a2"}},
				}...),
			},
			{Name: "both deleted", Do: []spec.Action{Delete("Service", "web"), Delete("Service", "moved")},
				Rows: append(append(movedIsGone(), recreatedFlows(spec.Row{Want: spec.NotServed, Times: 2})...),
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Conn: "open", Servers: []string{"a1"},
						Want:   spec.Reply | spec.Reset | spec.Silence | spec.NotServed,
						Choice: "an open connection of a Service that is deleted"},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.Refused},
				)},
			{
				Name: "made again, one with other addresses and ports",
				Do: []spec.Action{
					Apply(recreated()),
					ApplyAt(Service("moved", Port(81, 8080), NodePort(), NodePorts(30053)), "10.96.0.202", "fd00:10:96::ca"),
				},
				Rows: append(append(movedIsGone(), recreatedFlows(spec.Row{Servers: []string{"a1"}, Times: 2})...),
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1"}},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a1"}},
					spec.Row{From: "c1", To: spec.AddrAt("10.96.0.202", "fd00:10:96::ca", 81), Servers: []string{"a2"}},
					spec.Row{From: "c1", To: spec.AddrAt("10.96.0.202", "fd00:10:96::ca", 80), Want: spec.NotServed},
					spec.Row{From: "client", To: spec.HostAt("n1", 30053), Servers: []string{"a2"}},
				),
			},
		},
	}
}

// recreated is the Service that comes back as it was.
func recreated() *corev1.Service {
	return Service("web", NodePort(), Port(80, 8080), UDPPort(80, 8080))
}

// recreatedFlows are UDP flows to it that go on all the time.
func recreatedFlows(r spec.Row) []spec.Row {
	r.Proto, r.Conn = "udp", "flow"
	inside, outside := r, r
	inside.From, inside.To = "c1", spec.ClusterIPOf("web", 80)
	outside.From, outside.To, outside.Conn = "client", spec.NodePortAt("n1", "web", 80), "flow from outside"
	return []spec.Row{inside, outside}
}

// movedIsGone wants no answer at the first address and NodePort of the Service moved.
func movedIsGone() []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.AddrAt("10.96.0.201", "fd00:10:96::c9", 80), Want: spec.NotServed},
		{From: "n1", To: spec.AddrAt("10.96.0.201", "fd00:10:96::c9", 80), Want: spec.NotServed},
		{From: "client", To: spec.HostAt("n1", 30052), Want: spec.Refused},
	}
}

// portsChange keeps the port http as it is, and uses it without a pause meanwhile: every connection and request counts.
func portsChange() spec.Scenario {
	return spec.Scenario{
		ID: "svc-ports-change", NodePorts: []uint16{30054, 30055}, Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Pod("a1", "n1", App("web"), TCP(8080), TCP(9090)),
			Service("web", port("http", 80, 8080), NodePort(), NodePorts(30054)),
		},
		Steps: []spec.Step{
			{Name: "one port", Rows: unchanged()},
			{Name: "a second comes, changes and goes", Check: func(ctx context.Context, w spec.World) error {
				return w.During(ctx, unchanged(), func(ctx context.Context, _ spec.Traffic) error {
					for _, c := range portChanges {
						if err := c.change.Run(ctx, w); err != nil {
							return spec.HarnessErrorf("%s: %w", c.name, err)
						}
						if err := w.Expect(ctx, c.rows...); err != nil {
							return fmt.Errorf("%s: %w", c.name, err)
						}
					}
					return nil
				})
			}},
		},
	}
}

// portChanges are changes of the Service's second port, and who answers where after each.
var portChanges = []struct {
	name   string
	change spec.Action
	rows   []spec.Row
}{
	{"a port is added", ports(port("http", 80, 8080), port("adm", 81, 9090)), []spec.Row{
		{From: "c1", To: spec.ClusterIPRaw("web", 81), Servers: []string{"a1"}, Port: 9090},
		{From: "client", To: spec.HostAt("n1", 30055), Servers: []string{"a1"}, Port: 9090},
	}},
	{"it is renamed", ports(port("http", 80, 8080), port("admin", 81, 9090)), []spec.Row{
		{From: "c1", To: spec.ClusterIPRaw("web", 81), Servers: []string{"a1"}, Port: 9090},
		{From: "client", To: spec.HostAt("n1", 30055), Servers: []string{"a1"}, Port: 9090},
	}},
	{"it is renumbered", ports(port("http", 80, 8080), port("admin", 82, 9090)), []spec.Row{
		{From: "c1", To: spec.ClusterIPRaw("web", 81), Want: spec.NotServed},
		{From: "c1", To: spec.ClusterIPRaw("web", 82), Servers: []string{"a1"}, Port: 9090},
		{From: "client", To: spec.HostAt("n1", 30055), Servers: []string{"a1"}, Port: 9090},
	}},
	{"it is removed", ports(port("http", 80, 8080)), []spec.Row{
		{From: "c1", To: spec.ClusterIPRaw("web", 81), Want: spec.NotServed},
		{From: "c1", To: spec.ClusterIPRaw("web", 82), Want: spec.NotServed},
		{From: "client", To: spec.HostAt("n1", 30055), Want: spec.Refused},
	}},
}

func port(name string, number int32, target int) ServiceOption {
	return ServicePort(name, corev1.ProtocolTCP, number, target)
}

// ports gives the Service web other ports, with NodePorts 30054 and 30055.
func ports(options ...ServiceOption) spec.Action {
	return Edit("web", func(s *corev1.Service) {
		s.Spec.Ports = nil
		for i, o := range options {
			o(s)
			s.Spec.Ports[i].NodePort = 30054 + int32(i)
		}
	})
}

// unchanged are rows of the port that stays: its old connection, and a new one to each frontend.
func unchanged() []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPRaw("web", 80), Conn: "open", Servers: []string{"a1"}, Port: 8080},
		{From: "c1", To: spec.ClusterIPRaw("web", 80), Servers: []string{"a1"}, Port: 8080},
		{From: "client", To: spec.HostAt("n1", 30054), Servers: []string{"a1"}, Port: 8080},
	}
}

func proxyNameLabel() spec.Scenario {
	return spec.Scenario{
		ID: "svc-proxy-name-label", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.ServiceProxyName},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Service("web", NodePort()),
			Service("other", Selecting("web"), NodePort(), handedOver),
		},
		Steps: []spec.Step{
			{Name: "web is ours, other is not", Rows: append(served("web"), leftAlone("other")...)},
			{Name: "the other way round", Do: []spec.Action{Edit("web", handedOver), Edit("other", takenBack)},
				Rows: append(leftAlone("web"), served("other")...)},
			{Name: "both are ours", Do: []spec.Action{Edit("web", takenBack)}, Rows: append(served("web"), served("other")...)},
		},
	}
}

const proxyName = "service.kubernetes.io/service-proxy-name"

func handedOver(s *corev1.Service) { s.Labels = map[string]string{proxyName: "another-proxy"} }
func takenBack(s *corev1.Service)  { delete(s.Labels, proxyName) }

func served(service string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf(service, 80), Servers: []string{"a1"}},
		{From: "client", To: spec.NodePortAt("n1", service, 80), Servers: []string{"a1"}},
	}
}

func leftAlone(service string) []spec.Row {
	return []spec.Row{
		{From: "c1", To: spec.ClusterIPOf(service, 80), Want: spec.NotServed},
		{From: "client", To: spec.NodePortAt("n1", service, 80), Want: spec.Refused},
	}
}

// longNames has Services and ports with the longest names that the API takes, in every variant that proxiers program in
// another way and in a namespace with such a name. It has a cluster of its own, since a proxier may stop altogether.
func longNames() spec.Scenario {
	long := func(of string) string { return of + strings.Repeat("x", validation.DNS1035LabelMaxLength-len(of)) }
	port := func(s *corev1.Service) { s.Spec.Ports[0].Name = long("port") }
	service := func(name string, options ...ServiceOption) *corev1.Service {
		return Service(long(name), append([]ServiceOption{Selecting("web"), Port(80, 8080), port}, options...)...)
	}
	clusterIP := func(name string) spec.Target { return spec.ClusterIPOf(long(name), 80) }
	const id, nodePort = "svc-long-names", 30009
	far, ip := long(id), LoadBalancerIP(115)
	inFar := func(s *corev1.Service) { s.Namespace = far }
	return spec.Scenario{
		ID: id, NodePorts: []uint16{nodePort}, Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.LoadBalancer},
		Given: []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web"),
			Namespace(far, nil), Backend("a2", "n2", In(far))},
		Steps: []spec.Step{
			{Name: "before", Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a1", "a2"}}}},
			{Name: "the longest names", Do: append([]spec.Action{Apply(
				service("served", NodePort()), service("empty", Selecting("nobody"), NodePort()),
				service("sticky", Affinity()), service("local", NodePort(), ETPLocal()),
				service("ranged", LoadBalancer(), SourceRanges(ClientRange4, ClientRange6)),
				service("far", NodePort(), NodePorts(nodePort), inFar),
			)}, IngressViaN1(long("ranged"), ip.V4, ip.V6)...), Rows: []spec.Row{
				{From: "c1", To: clusterIP("served"), Servers: []string{"a1", "a2"}},
				{From: "client", To: spec.NodePortAt("n1", long("served"), 80), Servers: []string{"a1", "a2"}},
				{From: "c1", To: clusterIP("empty"), Want: spec.Refused},
				{From: "client", To: spec.NodePortAt("n1", long("empty"), 80), Want: spec.Refused},
				{From: "c1", To: clusterIP("sticky"), Servers: []string{"a1", "a2"}, Sticky: true},
				{From: "c1", To: clusterIP("local"), Servers: []string{"a1", "a2"}},
				{From: "client", To: ip, Servers: []string{"a1", "a2"}},
				{From: "client", Source: OtherClientAddr, To: ip, If: spec.SourceRanges,
					Want: DropOrReject},
				{From: "client", To: spec.HostAt("n1", nodePort), Servers: []string{far + "/a2"}},
			}},
			{Name: "a Service that comes later", Do: []spec.Action{Apply(Service("later", Selecting("web")))},
				Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("later", 80), Servers: []string{"a1", "a2"}}}},
		},
	}
}
