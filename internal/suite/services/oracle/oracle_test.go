// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	vip, lbIP, eip = "10.96.0.10", "203.0.113.1", "198.51.100.1"
	onN1, onN2     = "10.244.1.5", "10.244.2.5" // endpoints
)

var local, cluster = corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyCluster

// endpointOn returns an endpoint of a node.
func endpointOn(node, addr string, change ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{addr}, NodeName: ptr.To(node)}
	for _, c := range change {
		c(&e)
	}
	return e
}

func is(ready, serving, terminating bool) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}
	}
}

func forZone(zone string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
}

// world returns the state of two nodes, n1 in the east and n2 in the west, and a LoadBalancer Service that change may
// change.
func world(change func(*corev1.Service), endpoints ...discoveryv1.Endpoint) *State {
	s := &State{Offers: Offers{Topology: true, NodeHints: true, SourceRanges: true, ServiceProxyName: true}}
	for node, zone := range map[string]string{"n1": "east", "n2": "west"} {
		s.Nodes = append(s.Nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: map[string]string{"n1": "192.168.7.11", "n2": "192.168.7.12"}[node]},
			}},
		})
	}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: vip, ClusterIPs: []string{vip},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, ExternalIPs: []string{eip}, ExternalTrafficPolicy: cluster,
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30080}},
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: lbIP}}}},
	}
	if change != nil {
		change(svc)
	}
	s.Services = []*corev1.Service{svc}
	s.EndpointSlices = []*discoveryv1.EndpointSlice{sliceOf(endpoints...)}
	return s
}

func sliceOf(endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
}

var (
	podOnN1 = Sender{Addr: netip.MustParseAddr("10.244.1.9"), Node: "n1", Pod: true}
	n1      = Sender{Addr: netip.MustParseAddr("192.168.7.11"), Node: "n1"}
	outside = Sender{Addr: netip.MustParseAddr("192.168.7.201")}
)

func etpLocal(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = local }

func itpLocal(s *corev1.Service) {
	s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
}

func TestAsk(t *testing.T) {
	both := []discoveryv1.Endpoint{endpointOn("n1", onN1), endpointOn("n2", onN2)}
	far := both[1:]
	cases := map[string]struct {
		state *State
		from  Sender
		to    string
		want  Verdict
		rule  Rule
		by    []string
	}{
		// core/v1 ServiceSpec.internalTrafficPolicy
		"internal Cluster":                            {world(nil, both...), podOnN1, vip + ":80", Served, internalCluster, []string{onN1, onN2}},
		"internal Local":                              {world(itpLocal, both...), podOnN1, vip + ":80", Served, internalLocal, []string{onN1}},
		"internal Local, nobody":                      {world(itpLocal, far...), podOnN1, vip + ":80", DroppedOrRefused, internalNobody, nil},
		"internal Local says nothing of external IPs": {world(itpLocal, both...), podOnN1, eip + ":80", Served, externalCluster, []string{onN1, onN2}},
		// discovery.k8s.io/v1 Endpoint.addresses: the API refuses multicast within a link alone
		"a multicast endpoint beside another": {world(nil, endpointOn("n1", onN1), endpointOn("n2", "239.1.2.3")), podOnN1,
			vip + ":80", MayBeServed, multicastEndpoint, []string{onN1}},
		"a multicast endpoint without a hint": {world(nil, endpointOn("n1", onN1, forZone("east")),
			endpointOn("n2", onN2, forZone("west")), endpointOn("n2", "239.1.2.3")), podOnN1, vip + ":80", MayBeServed,
			multicastEndpoint, []string{onN1, onN2}},
		"an unready multicast endpoint": {world(nil, endpointOn("n1", onN1), endpointOn("n2", "239.1.2.3", is(false, false, false))),
			podOnN1, vip + ":80", Served, internalCluster, []string{onN1}},
		"a multicast endpoint far away": {world(etpLocal, endpointOn("n2", "239.1.2.3")), outside, "192.168.7.11:30080", Open,
			multicastEndpoint, nil},
		// core/v1 ServiceSpec.externalTrafficPolicy
		"external Cluster":                 {world(nil, both...), outside, "192.168.7.11:30080", Served, externalCluster, []string{onN1, onN2}},
		"external Local":                   {world(etpLocal, both...), outside, "192.168.7.11:30080", Served, externalLocal, []string{onN1}},
		"external Local, nobody":           {world(etpLocal, far...), outside, "192.168.7.11:30080", Dropped, externalNobody, nil},
		"external Local, nobody anywhere":  {world(etpLocal), outside, "192.168.7.11:30080", DroppedOrRefused, externalNowhere, nil},
		"external Local, from inside":      {world(etpLocal, far...), podOnN1, lbIP + ":80", Served, externalInside, []string{onN2}},
		"external Local, own NodePort":     {world(etpLocal, far...), podOnN1, "192.168.7.11:30080", MayBeServed, nodePortInside, []string{onN2}},
		"external Local, other's NodePort": {world(etpLocal, both...), podOnN1, "192.168.7.12:30080", Served, nodePortInside, []string{onN1, onN2}},
		"external Local leaves ClusterIP":  {world(etpLocal, far...), podOnN1, vip + ":80", Served, internalCluster, []string{onN2}},
		// test/e2e/network/loadbalancer.go: "looking for ICMP REJECT on the TCP service's LoadBalancer"
		"no endpoints": {world(nil), n1, lbIP + ":80", Refused, noEndpointsOutside, nil},
		// core/v1 ServiceSpec.externalName: no proxying is involved
		"ExternalName with an external IP": {world(externalName, both...), outside, eip + ":80", NotServed, aliased, nil},
		"ExternalName, another port":       {world(externalName, both...), outside, eip + ":81", NotServed, unclaimed, nil},
		// core/v1 ServiceSpec.publishNotReadyAddresses: agents disregard indications of readiness
		"published, not ready": {world(published, endpointOn("n1", onN1, is(false, false, false))), podOnN1, vip + ":80",
			MayBeServed, publishedNotReady, []string{onN1}},
		"published on another node, Local": {world(func(s *corev1.Service) { etpLocal(s); published(s) },
			endpointOn("n2", onN2, is(false, false, false))), outside, lbIP + ":80",
			DroppedOrRefused, externalNowhere, nil},
		"published, with the only hint for the client": {world(published, endpointOn("n1", onN1, forZone("north")),
			endpointOn("n2", onN2, is(false, false, true), forZone("east"))), podOnN1, vip + ":80",
			Served, publishedNotReady, []string{onN1, onN2}},
		"published beside ready": {world(published, endpointOn("n1", onN1, is(false, false, false)), both[1]), podOnN1, vip + ":80",
			Served, internalCluster, []string{onN1, onN2}},
		// Ports that nobody claims, and who may claim them
		"another port":    {world(nil, both...), podOnN1, vip + ":81", NotServed, unclaimed, nil},
		"another's label": {world(func(s *corev1.Service) { s.Labels = map[string]string{labelProxyName: "x"} }, both...), podOnN1, vip + ":80", NotServed, otherProxier, nil},
		"ipMode Proxy": {world(func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress[0].IPMode = ptr.To(corev1.LoadBalancerIPModeProxy)
		}, both...), podOnN1, lbIP + ":80", Open, proxyMode, nil},
		"ClusterIP outside": {world(nil, both...), outside, vip + ":80", Open, outsideToClusterIP, nil},
		// Conditions: discovery.k8s.io/v1 EndpointConditions; KEP-1669
		"a condition that is not given": {world(nil, endpointOn("n1", onN1, func(e *discoveryv1.Endpoint) { e.Conditions.Ready = nil })), podOnN1, vip + ":80", Served, internalCluster, []string{onN1}},
		"one is not ready":              {world(nil, endpointOn("n1", onN1, is(false, false, false)), both[1]), podOnN1, vip + ":80", Served, internalCluster, []string{onN2}},
		"terminating beside ready":      {world(nil, endpointOn("n1", onN1, is(false, true, true)), both[1]), podOnN1, vip + ":80", Served, internalCluster, []string{onN2}},
		"terminating alone":             {world(nil, endpointOn("n1", onN1, is(false, true, true))), podOnN1, vip + ":80", Served, terminating, []string{onN1}},
		"terminating, not serving":      {world(nil, endpointOn("n1", onN1, is(false, false, true))), podOnN1, vip + ":80", Refused, noEndpoints, nil},
		"terminating alone on its node": {world(etpLocal, endpointOn("n1", onN1, is(false, true, true)), both[1]), outside, "192.168.7.11:30080", Served, terminating, []string{onN1}},
		// Topology
		"hinted":             {world(nil, endpointOn("n1", onN1, forZone("east")), endpointOn("n2", onN2, forZone("west"))), podOnN1, vip + ":80", Served, hinted, []string{onN1}},
		"one without hint":   {world(nil, endpointOn("n1", onN1, forZone("east")), both[1]), podOnN1, vip + ":80", Served, internalCluster, []string{onN1, onN2}},
		"zone without hints": {world(nil, endpointOn("n1", onN1, forZone("west")), endpointOn("n2", onN2, forZone("west"))), podOnN1, vip + ":80", Served, internalCluster, []string{onN1, onN2}},
		"an unready one without hint": {world(nil, endpointOn("n1", onN1, forZone("east")), endpointOn("n2", onN2, forZone("west")),
			endpointOn("n2", "10.244.2.6", is(false, false, false))), podOnN1, vip + ":80", Served, hintsOfUnready, []string{onN1, onN2}},
		"hints of client and node differ": {world(nil, endpointOn("n1", onN1, forZone("east")), endpointOn("n2", onN2, forZone("west"))),
			podOnN1, "192.168.7.12:30080", Served, hintsAtClient, []string{onN1, onN2}},
		"hints and Local": {world(itpLocal, endpointOn("n1", onN1, forZone("west")), endpointOn("n2", onN2, forZone("east"))), podOnN1, vip + ":80", Served, internalLocal, []string{onN1}},
		// loadBalancerSourceRanges
		"in the ranges":                  {world(ranged("192.168.7.201/32"), both...), outside, lbIP + ":80", Served, externalCluster, []string{onN1, onN2}},
		"out of the ranges":              {world(ranged(" 10.0.0.0/30"), both...), outside, lbIP + ":80", DroppedOrRefused, outOfRange, nil},
		"ranges concern no NodePort":     {world(ranged("10.0.0.0/30"), both...), outside, "192.168.7.11:30080", Served, externalCluster, []string{onN1, onN2}},
		"ranges of the other family":     {world(ranged("2001:db8::/32"), both...), outside, lbIP + ":80", MayBeServed, rangesElsewhere, []string{onN1, onN2}},
		"further addresses mean nothing": {world(nil, endpointOn("n1", onN1, func(e *discoveryv1.Endpoint) { e.Addresses = append(e.Addresses, "10.244.1.7") })), podOnN1, vip + ":80", Served, internalCluster, []string{onN1}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := c.state.Ask(Question{From: c.from, To: netip.MustParseAddrPort(c.to), Protocol: corev1.ProtocolTCP, Via: "n1"})
			if got.Verdict != c.want || got.Rule() != c.rule {
				t.Errorf("got %s by %q, want %s by %q", got.Verdict, got.Rule().Name, c.want, c.rule.Name)
			}
			var by []string
			for _, e := range got.Endpoints {
				by = append(by, e.Addr().String())
			}
			if len(by) != len(c.by) || len(by) > 0 && by[0] != c.by[0] {
				t.Errorf("answered by %v, want %v", by, c.by)
			}
		})
	}
}

func externalName(s *corev1.Service) {
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs, s.Spec.IPFamilies = corev1.ServiceTypeExternalName, "", nil, nil
}

func published(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }

func ranged(ranges ...string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges }
}

// KEP-2447: "It is optional for other service proxy implementations".
func TestTheLabelOfAnotherProxierIsAnOption(t *testing.T) {
	s := world(func(svc *corev1.Service) { svc.Labels = map[string]string{labelProxyName: "another"} },
		endpointOn("n1", onN1))
	q := Question{From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolTCP}
	if a := s.Ask(q); a.Verdict != NotServed || a.Rule() != otherProxier {
		t.Errorf("with the option: %+v", a)
	}
	s.Offers.ServiceProxyName = false
	if a := s.Ask(q); a.Verdict != Open || a.Rule() != proxyNameOptional {
		t.Errorf("without the option: %+v", a)
	}
}

// KEP-2447 passes over Endpoints with the label, the page on labels says that it is used on Services.
func TestASliceThatIsHandedOver(t *testing.T) {
	s := world(nil, endpointOn("n1", onN1))
	s.EndpointSlices[0].Labels[labelProxyName] = "another"
	a := s.Ask(Question{From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolTCP})
	if a.Verdict != Open || a.Rule() != sliceHandedOver {
		t.Errorf("got %v because of %s, want open because of %s", a.Verdict, a.Rule().Name, sliceHandedOver.Name)
	}
}

func TestAnotherProtocolIsNotServed(t *testing.T) {
	s := world(nil, endpointOn("n1", onN1))
	got := s.Ask(Question{From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolUDP})
	if got.Verdict != NotServed {
		t.Errorf("UDP to a TCP port: %s", got.Verdict)
	}
}

func TestSourcesAndAffinity(t *testing.T) {
	both := []discoveryv1.Endpoint{endpointOn("n1", onN1), endpointOn("n2", onN2)}
	ask := func(change func(*corev1.Service), from Sender, to string) Answer {
		return world(change, both...).Ask(Question{From: from, To: netip.MustParseAddrPort(to), Protocol: corev1.ProtocolTCP, Via: "n1"})
	}
	if a := ask(nil, podOnN1, vip+":80"); a.Source != Client || !a.Evenly || a.Sticky {
		t.Errorf("pod to ClusterIP: %+v", a)
	}
	if a := ask(etpLocal, outside, lbIP+":80"); a.Source != Client {
		t.Errorf("Local from outside: %+v", a)
	}
	if a := ask(nil, outside, lbIP+":80"); a.Source != ClientOrNode {
		t.Errorf("Cluster from outside: %+v", a)
	}
	sticky := func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
	if a := ask(sticky, podOnN1, vip+":80"); !a.Sticky || a.Evenly {
		t.Errorf("affinity: %+v", a)
	}
	brief := func(s *corev1.Service) {
		sticky(s)
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](1)}}
	}
	if a := ask(brief, podOnN1, vip+":80"); a.Sticky || a.Evenly {
		t.Errorf("affinity of one second: %+v", a)
	}
}

func TestDuplicates(t *testing.T) {
	unready := is(false, false, false)
	draining := is(false, true, true)
	for name, c := range map[string]struct {
		change            func(*corev1.Service)
		first, second     []discoveryv1.Endpoint
		want              Verdict
		endpoints, surely int
		even              bool
	}{
		"they agree": {nil, []discoveryv1.Endpoint{endpointOn("n1", onN1)},
			[]discoveryv1.Endpoint{endpointOn("n1", onN1), endpointOn("n2", onN2)}, Served, 2, 2, true},
		"one says unready": {nil, []discoveryv1.Endpoint{endpointOn("n1", onN1)},
			[]discoveryv1.Endpoint{endpointOn("n1", onN1, unready), endpointOn("n2", onN2)}, Served, 2, 1, false},
		"one says unready, alone": {nil, []discoveryv1.Endpoint{endpointOn("n1", onN1)},
			[]discoveryv1.Endpoint{endpointOn("n1", onN1, unready)}, MayBeServed, 1, 0, false},
		"one has hints, both are ready": {nil, []discoveryv1.Endpoint{endpointOn("n1", onN1, forZone("west"))},
			[]discoveryv1.Endpoint{endpointOn("n1", onN1)}, Served, 1, 0, false},
		"ready or draining, but served": {nil, []discoveryv1.Endpoint{endpointOn("n1", onN1)},
			[]discoveryv1.Endpoint{endpointOn("n1", onN1, draining)}, Served, 1, 0, false},
		"ready or not beside a draining one": {nil, []discoveryv1.Endpoint{endpointOn("n1", onN1)},
			[]discoveryv1.Endpoint{endpointOn("n1", onN1, unready), endpointOn("n2", onN2, draining)}, Served, 2, 0, false},
		"Local, of which node": {itpLocal, []discoveryv1.Endpoint{endpointOn("n1", onN1)},
			[]discoveryv1.Endpoint{endpointOn("n2", onN1)}, MayBeServed, 1, 0, false},
		"Local, of another node that both name": {itpLocal, []discoveryv1.Endpoint{endpointOn("n2", onN2)},
			[]discoveryv1.Endpoint{endpointOn("n2", onN2, unready)}, DroppedOrRefused, 0, 0, false},
	} {
		s := world(c.change, c.first...)
		s.EndpointSlices = append(s.EndpointSlices, sliceOf(c.second...))
		a := s.Ask(Question{From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolTCP})
		if a.Verdict != c.want || len(a.Endpoints) != c.endpoints || len(a.Sure) != c.surely || a.Evenly != c.even {
			t.Errorf("%s: got %+v", name, a)
		}
	}
}

func TestAnAddressThatIsOpenIsNotAsked(t *testing.T) {
	s := world(nil, endpointOn("n1", onN1))
	other := s.Services[0].DeepCopy()
	other.Name, other.Spec.ExternalIPs, other.Status = "other", []string{lbIP}, corev1.ServiceStatus{}
	s.Services[0].Status.LoadBalancer.Ingress[0].IPMode = ptr.To(corev1.LoadBalancerIPModeProxy)
	s.Services = append(s.Services, other)
	a := s.Ask(Question{From: podOnN1, To: netip.MustParseAddrPort(lbIP + ":80"), Protocol: corev1.ProtocolTCP})
	if a.Verdict != Open || a.Rule() != proxyMode {
		t.Errorf("one Service has the address as a proxy, another as its external IP: %+v", a)
	}
	s = world(nil, endpointOn("n1", onN1))
	s.EndpointSlices[0].Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
	if a := s.Ask(Question{From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolTCP}); a.Rule() != portProtocol {
		t.Errorf("a slice has another protocol: %+v", a)
	}
	s = world(nil, endpointOn("n1", onN1))
	s.EndpointSlices[0].Ports[0].Port = nil
	a = s.Ask(Question{From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolTCP})
	if a.Rule() != portUnrestricted {
		t.Errorf("a slice has a port without a number: %+v", a)
	}
	rival := s.Services[0].DeepCopy()
	rival.Name, rival.Spec.ExternalIPs, rival.Status = "rival", []string{lbIP}, corev1.ServiceStatus{}
	s.Services = append(s.Services, rival)
	a = s.Ask(Question{From: podOnN1, To: netip.MustParseAddrPort(lbIP + ":80"), Protocol: corev1.ProtocolTCP})
	if a.Verdict != Open || a.Rule() != portUnrestricted {
		t.Errorf("another Service has the address, too: %+v", a)
	}
	s = world(func(s *corev1.Service) {
		s.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
	},
		endpointOn("n1", onN1), endpointOn("n2", onN2))
	if a := s.Ask(Question{From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolTCP}); a.Evenly ||
		a.Rule() != hintsOptional || len(a.Endpoints) != 2 {
		t.Errorf("trafficDistribution without hints: %+v", a)
	}
}

func TestFollow(t *testing.T) {
	udp := func(change func(*corev1.Service), endpoints ...discoveryv1.Endpoint) *State {
		s := world(change, endpoints...)
		s.Services[0].Spec.Ports[0].Protocol = corev1.ProtocolUDP
		s.EndpointSlices[0].Ports[0].Protocol = ptr.To(corev1.ProtocolUDP)
		return s
	}
	near, far := endpointOn("n1", onN1), endpointOn("n2", onN2)
	q := Question{From: podOnN1, To: netip.MustParseAddrPort(vip + ":80"), Protocol: corev1.ProtocolUDP}
	server := netip.MustParseAddrPort(onN1 + ":8080")
	inDoubt := udp(nil, near, far)
	inDoubt.EndpointSlices = append(inDoubt.EndpointSlices, inDoubt.EndpointSlices[0].DeepCopy())
	is(false, false, false)(&inDoubt.EndpointSlices[1].Endpoints[0])
	gone := udp(nil)
	gone.Services = nil
	for name, c := range map[string]struct {
		now  *State
		want Verdict
		rule Rule
		move bool
	}{
		"nothing changes":        {udp(nil, near, far), Served, flowStays, false},
		"the endpoint leaves":    {udp(nil, far), Served, flowMoves, true},
		"it turns unready":       {udp(nil, endpointOn("n1", onN1, is(false, false, false)), far), Served, flowMoves, true},
		"it terminates, serving": {udp(nil, endpointOn("n1", onN1, is(false, true, true)), far), Served, flowDrains, true},
		"a slice says unready":   {inDoubt, Served, flowDrains, true},
		"the last one leaves":    {udp(nil), Refused, flowMoves, true},
		"the Service is deleted": {gone, NotServed, flowEnds, false},
	} {
		if got := c.now.Follow(q, server); got.Verdict != c.want || got.Rule() != c.rule || got.MayMove != c.move {
			t.Errorf("%s: got %s by %s, may move: %t", name, got.Verdict, got.Rule().Name, got.MayMove)
		}
	}
	other, drains := netip.MustParseAddrPort(onN2+":8080"), endpointOn("n2", onN2, is(false, true, true))
	for name, c := range map[string]struct {
		now  *State
		want Verdict
		by   []netip.AddrPort
	}{
		"nothing changes":        {udp(nil, near, far), Served, []netip.AddrPort{server, other}},
		"one leaves":             {udp(nil, far), Served, []netip.AddrPort{other}},
		"one terminates":         {udp(nil, near, drains), Served, []netip.AddrPort{server, other}},
		"the last one drains":    {udp(itpLocal, drains), Open, nil},
		"both leave":             {udp(nil), Refused, nil},
		"the Service is deleted": {gone, NotServed, nil},
	} {
		got := c.now.FollowRelayed(q, []netip.AddrPort{server, other})
		slices.SortFunc(got.Endpoints, netip.AddrPort.Compare)
		if by := slices.Compact(got.Endpoints); got.Verdict != c.want || !slices.Equal(by, c.by) {
			t.Errorf("relayed, %s: got %s by %s, want %s by %s", name, got.Verdict, by, c.want, c.by)
		}
	}
	q.Protocol = corev1.ProtocolTCP
	if got := world(nil, far).Follow(q, server); got.Verdict != Open || got.Rule() != tcpUndecided {
		t.Errorf("TCP, the endpoint leaves: %+v", got)
	}
	if got := world(nil, near, far).Follow(q, server); got.Verdict != Served || got.MayMove {
		t.Errorf("TCP, nothing changes: %+v", got)
	}
}

func TestEveryRuleHasASource(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if r.Name == "" || r.Text == "" || r.Source == "" || seen[r.Name] {
			t.Errorf("rule %+v is not complete, or is there twice", r)
		}
		seen[r.Name] = true
	}
}
