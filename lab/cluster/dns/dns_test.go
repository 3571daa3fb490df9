// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }

// shop returns a cluster with a Service of each kind in the namespace default.
func shop(t *testing.T) *store.Store {
	t.Helper()
	state := store.New(store.Config{Stack: lab.Dual})
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	dual := corev1.IPFamilyPolicyRequireDualStack
	port := []corev1.ServicePort{{Name: "http", Port: 80}}
	slice := func(kind discoveryv1.AddressType, number int32,
		endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		name, proto := "http", corev1.ProtocolTCP
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: meta("db-" + strings.ToLower(string(kind))), AddressType: kind, Endpoints: endpoints,
			Ports: []discoveryv1.EndpointPort{{Name: &name, Protocol: &proto, Port: &number}},
		}
		s.Labels = map[string]string{discoveryv1.LabelServiceName: "db"}
		return s
	}
	alias := func(name, of string) *corev1.Service {
		return &corev1.Service{ObjectMeta: meta(name),
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: of}}
	}
	ready, not, hostname := true, false, "first"
	endpoint := func(ip string, ready *bool, host *string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{ip}, Hostname: host,
			Conditions: discoveryv1.EndpointConditions{Ready: ready}}
	}
	if err := state.Apply(
		&corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.80", ClusterIPs: []string{"10.96.0.80", "fd00:10:96::80"}, IPFamilyPolicy: &dual, Ports: port,
		}},
		&corev1.Service{ObjectMeta: meta("db"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone,
			IPFamilyPolicy: &dual, Ports: port}},
		&corev1.Service{ObjectMeta: meta("none"), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: port}},
		&corev1.Service{ObjectMeta: meta("away"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName,
			ExternalName: "db.example.org"}},
		&corev1.Service{ObjectMeta: meta("bare"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		alias("inside", "web.default.svc.cluster.local."), alias("twice", "inside.default.svc.cluster.local"),
		alias("lost", "nobody.default.svc.cluster.local"), alias("ring-a", "ring-b.default.svc.cluster.local"),
		alias("ring-b", "ring-a.default.svc.cluster.local"),
		slice(discoveryv1.AddressTypeIPv4, 5432, endpoint("10.244.1.2", &ready, &hostname),
			endpoint("10.244.1.3", &not, nil), endpoint("10.244.2.2", nil, nil)),
		slice(discoveryv1.AddressTypeIPv6, 5432, endpoint("fd00:10:244:1::2", &ready, &hostname),
			endpoint("fd00:10:244:2::", &ready, nil)),
	); err != nil {
		t.Fatal(err)
	}
	return state
}

// TestRecords asks over both transports and compares with what the specification of Kubernetes wants.
func TestRecords(t *testing.T) {
	ns, err := netns.New("dns")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	lo, err := ns.Netlink().LinkByName("lo")
	if err == nil {
		err = ns.Netlink().LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	at := netip.MustParseAddr("127.0.0.1")
	state := shop(t)
	server, err := dns.Serve(ctx, ns, "d1", []netip.Addr{at, netip.MustParseAddr("127.0.0.2")}, state)
	if err != nil {
		t.Fatal(err)
	}
	const ok, missing, refused = dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError, dnsmessage.RCodeRefused
	for _, c := range []struct {
		name string
		kind dnsmessage.Type
		code dnsmessage.RCode
		want []string
	}{
		{"web.default.svc.cluster.local", dnsmessage.TypeA, ok, []string{"A 10.96.0.80"}},
		{"WEB.default.SVC.cluster.local.", dnsmessage.TypeAAAA, ok, []string{"AAAA fd00:10:96::80"}},
		{"web.default.svc.cluster.local", dnsmessage.TypeTXT, ok, nil},
		{"_http._tcp.web.default.svc.cluster.local", dnsmessage.TypeSRV, ok,
			[]string{"SRV 80 web.default.svc.cluster.local"}},
		{"_http._tcp.web.default.svc.cluster.local", dnsmessage.TypeA, ok, nil},
		{"_http._udp.web.default.svc.cluster.local", dnsmessage.TypeSRV, missing, nil},
		{"first.web.default.svc.cluster.local", dnsmessage.TypeA, missing, nil},
		{"db.default.svc.cluster.local", dnsmessage.TypeA, ok, []string{"A 10.244.1.2", "A 10.244.2.2"}},
		{"db.default.svc.cluster.local", dnsmessage.TypeAAAA, ok, []string{"AAAA fd00:10:244:1::2", "AAAA fd00:10:244:2::"}},
		{"fd00-10-244-2--0.db.default.svc.cluster.local", dnsmessage.TypeAAAA, ok, []string{"AAAA fd00:10:244:2::"}},
		{"first.db.default.svc.cluster.local", dnsmessage.TypeA, ok, []string{"A 10.244.1.2"}},
		{"10-244-2-2.db.default.svc.cluster.local", dnsmessage.TypeA, ok, []string{"A 10.244.2.2"}},
		{"10-244-1-3.db.default.svc.cluster.local", dnsmessage.TypeA, missing, nil},
		{"_http._tcp.db.default.svc.cluster.local", dnsmessage.TypeSRV, ok, []string{
			"SRV 5432 10-244-2-2.db.default.svc.cluster.local", "SRV 5432 fd00-10-244-2--0.db.default.svc.cluster.local",
			"SRV 5432 first.db.default.svc.cluster.local",
		}},
		{"80.0.96.10.in-addr.arpa", dnsmessage.TypePTR, ok, []string{"PTR web.default.svc.cluster.local"}},
		{"80.0.96.10.in-addr.arpa", dnsmessage.TypeA, ok, nil},
		{dns.ReverseName(netip.MustParseAddr("fd00:10:96::80")), dnsmessage.TypePTR, ok,
			[]string{"PTR web.default.svc.cluster.local"}},
		{"2.1.244.10.in-addr.arpa", dnsmessage.TypePTR, ok, []string{"PTR first.db.default.svc.cluster.local"}},
		{"3.1.244.10.in-addr.arpa", dnsmessage.TypePTR, missing, nil},
		{"none.default.svc.cluster.local", dnsmessage.TypeA, missing, nil},
		{"away.default.svc.cluster.local", dnsmessage.TypeA, ok, []string{"CNAME db.example.org"}},
		{"inside.default.svc.cluster.local", dnsmessage.TypeA, ok,
			[]string{"A 10.96.0.80", "CNAME web.default.svc.cluster.local"}},
		{"inside.default.svc.cluster.local", dnsmessage.TypeCNAME, ok, []string{"CNAME web.default.svc.cluster.local"}},
		{"twice.default.svc.cluster.local", dnsmessage.TypeAAAA, ok, []string{"AAAA fd00:10:96::80",
			"CNAME inside.default.svc.cluster.local", "CNAME web.default.svc.cluster.local"}},
		{"lost.default.svc.cluster.local", dnsmessage.TypeA, missing,
			[]string{"CNAME nobody.default.svc.cluster.local"}},
		{"ring-a.default.svc.cluster.local", dnsmessage.TypeA, ok,
			[]string{"CNAME ring-a.default.svc.cluster.local", "CNAME ring-b.default.svc.cluster.local"}},
		{"x.away.default.svc.cluster.local", dnsmessage.TypeA, missing, nil},
		{"dns-version.cluster.local", dnsmessage.TypeTXT, ok, []string{"TXT 1.1.0"}},
		{"dns-version.cluster.local", dnsmessage.TypeA, ok, nil},
		{"10-244-1-9.default.pod.cluster.local", dnsmessage.TypeA, ok, []string{"A 10.244.1.9"}},
		{"10-244-1-9.default.pod.cluster.local", dnsmessage.TypeAAAA, ok, nil},
		{"fd00-10--9.default.pod.cluster.local", dnsmessage.TypeAAAA, ok, []string{"AAAA fd00:10::9"}},
		{"10-244-1-9.nobody.pod.cluster.local", dnsmessage.TypeA, missing, nil},
		{"10-244-1-256.default.pod.cluster.local", dnsmessage.TypeA, missing, nil},
		{"x.10-244-1-9.default.pod.cluster.local", dnsmessage.TypeA, missing, nil},
		{"default.pod.cluster.local", dnsmessage.TypeA, ok, nil},
		{"cluster.local", dnsmessage.TypeAXFR, refused, nil},
		{"_._tcp.bare.default.svc.cluster.local", dnsmessage.TypeSRV, missing, nil},
		{"cluster.local", dnsmessage.TypeSOA, ok, []string{"TypeSOA"}},
		{"in-addr.arpa", dnsmessage.TypeA, ok, nil},
		{"cluster.local", dnsmessage.TypeA, ok, nil},
		{"default.svc.cluster.local", dnsmessage.TypeA, ok, nil},
		{"nobody.svc.cluster.local", dnsmessage.TypeA, missing, nil},
		{"web.cluster.local", dnsmessage.TypeA, missing, nil},
		{"other.default.svc.cluster.local", dnsmessage.TypeA, missing, nil},
		{"a.b.c.web.default.svc.cluster.local", dnsmessage.TypeA, missing, nil},
		{"example.org", dnsmessage.TypeA, refused, nil},
	} {
		for _, proto := range []string{"udp", "tcp"} {
			q := dns.Question{From: ns, Server: netip.AddrPortFrom(at, dns.Port), Proto: proto, Name: c.name, Type: c.kind}
			r, err := q.Do(ctx)
			if err != nil || r.Code != c.code || !slices.Equal(r.Records, c.want) || r.From != q.Server {
				t.Errorf("%s: %v %v from %s (%v), want %v %v", q, r.Code, r.Records, r.From, err, c.code, c.want)
			}
		}
	}
	who, err := dns.ServerNameQuestion(ns, netip.MustParseAddrPort("127.0.0.2:53"), "udp").Do(ctx)
	if err != nil || !slices.Equal(who.Records, []string{"TXT d1"}) {
		t.Errorf("who answers: %v (%v)", who, err)
	}
	t.Run("messages", func(t *testing.T) { messages(t, ctx, ns) })
	t.Run("too long for UDP", func(t *testing.T) { tooLong(t, ctx, ns, state) })
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if r, err := dns.ServerNameQuestion(ns, netip.AddrPortFrom(at, dns.Port), "tcp").Do(ctx); err == nil {
		t.Errorf("a closed server answers %v", r)
	}
}

// messages looks at what a Reply does not hold: the zone that lacks a name, and a version of EDNS that nobody speaks.
func messages(t *testing.T, ctx context.Context, ns *netns.NS) {
	for _, c := range []struct {
		name, zone string
		version    uint32
		code       dnsmessage.RCode
	}{
		{"nobody.default.svc.cluster.local.", "cluster.local.", 0, dnsmessage.RCodeNameError},
		{"lost.default.svc.cluster.local.", "cluster.local.", 0, dnsmessage.RCodeNameError},
		{"9.9.9.10.in-addr.arpa.", "in-addr.arpa.", 0, dnsmessage.RCodeNameError},
		{"web.default.svc.cluster.local.", "", 1, 16}, // BADVERS
	} {
		edns := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
		if err := edns.Header.SetEDNS0(1232, 0, false); err != nil {
			t.Fatal(err)
		}
		edns.Header.TTL |= c.version << 16
		packed, err := (&dnsmessage.Message{
			Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(c.name), Type: dnsmessage.TypeA,
				Class: dnsmessage.ClassINET}}, Additionals: []dnsmessage.Resource{edns},
		}).Pack()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := ns.Dial(ctx, "udp", netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:53"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
		if _, err := conn.Write(packed); err != nil {
			t.Fatal(err)
		}
		buffer := make([]byte, 512)
		n, err := conn.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		var m dnsmessage.Message
		if err := m.Unpack(buffer[:n]); err != nil || len(m.Additionals) != 1 {
			t.Fatalf("%s: %v (%v)", c.name, m.GoString(), err)
		}
		zone := ""
		for _, r := range m.Authorities {
			zone += r.Header.Name.String()
		}
		if got := m.Additionals[0].Header.ExtendedRCode(m.RCode); got != c.code || zone != c.zone {
			t.Errorf("%s: %v, no such name in %q, want %v, %q", c.name, got, zone, c.code, c.zone)
		}
	}
}

// tooLong: an answer that does not fit says so, and is whole over TCP.
func tooLong(t *testing.T, ctx context.Context, ns *netns.NS, state *store.Store) {
	var all []discoveryv1.Endpoint
	for i := range 100 {
		all = append(all, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.244.3.%d", i+1)}})
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "none-1", Labels: map[string]string{discoveryv1.LabelServiceName: "none"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: all,
	}
	if err := state.Apply(s); err != nil {
		t.Fatal(err)
	}
	q := dns.Question{
		From: ns, Server: netip.MustParseAddrPort("127.0.0.1:53"), Proto: "udp",
		Name: "none.default.svc.cluster.local", Type: dnsmessage.TypeA,
	}
	if r, err := q.Do(ctx); err != nil || !r.Truncated || len(r.Records) > 0 {
		t.Errorf("over UDP: truncated %t, %d records (%v)", r.Truncated, len(r.Records), err)
	}
	q.Proto = "tcp"
	if r, err := q.Do(ctx); err != nil || r.Truncated || len(r.Records) != 100 {
		t.Errorf("over TCP: truncated %t, %d records (%v)", r.Truncated, len(r.Records), err)
	}
	// Six SRV records fit into 512 bytes, the addresses of their targets beside them do not.
	name, port := "http", int32(80)
	s = s.DeepCopy()
	s.Endpoints, s.Ports = all[:6], []discoveryv1.EndpointPort{{Name: &name, Port: &port}}
	if err := state.Apply(s); err != nil {
		t.Fatal(err)
	}
	q.Proto, q.Name, q.Type = "udp", "_http._tcp.none.default.svc.cluster.local", dnsmessage.TypeSRV
	if r, err := q.Do(ctx); err != nil || r.Truncated || len(r.Records) != 6 {
		t.Errorf("SRV records over UDP: truncated %t, %d records (%v)", r.Truncated, len(r.Records), err)
	}
}
