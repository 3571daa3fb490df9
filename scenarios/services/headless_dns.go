// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// asks is how many questions go over each transport. That one of two servers gets none of 40 happens once in 2^39 runs.
const asks = 20

func vip() spec.Scenario {
	return spec.Scenario{
		ID: "dns-vip-udp-and-tcp", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), DNSServer("d1", "n1"), DNSServer("d2", "n2"), DNS(), Service("web"),
		},
		Steps: []spec.Step{{Check: EachFamily(func(ctx context.Context, w spec.World, family lab.Family) error {
			for _, from := range []string{"c1", "n1"} {
				answered := map[string]bool{}
				for _, proto := range []string{"udp", "tcp"} {
					askOften(ctx, w, from, proto, family, answered)
				}
				if len(answered) != 2 {
					return fmt.Errorf("%s, %s: of 2 servers %d answered %d questions", from, family, len(answered), 2*asks)
				}
			}
			return nil
		})}},
	}
}

// askOften asks for the Service web, and each time for who it is that answers.
func askOften(ctx context.Context, w spec.World, from, proto string, family lab.Family,
	answered map[string]bool) {
	q := question(w, from, proto, family)
	web := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
	q.Name, q.Type = "web."+w.Namespace()+".svc."+dns.Domain, typeOf(web.Addr())
	spec.TryDo(want(ctx, q, inRecord(web.Addr())))
	for range asks {
		who := ask(ctx, dns.ServerNameQuestion(q.From, q.Server, proto))
		answered[strings.Join(who.Records, " ")] = true
	}
}

// question is one to the address of the DNS Service, without a name yet.
func question(w spec.World, from, proto string, family lab.Family) dns.Question {
	h := spec.Must(w.Host(from))
	server := spec.Must(w.Resolve(spec.ClusterIPOf("kube-dns", dns.Port), family, proto))
	return dns.Question{From: h.NS, Server: server, Proto: proto}
}

// ask wants a reply, and the address that was asked as its source.
func ask(ctx context.Context, q dns.Question) dns.Reply {
	ctx, cancel := WithPatience(ctx)
	defer cancel()
	r := spec.Try(q.Do(ctx))
	if r.From != q.Server {
		spec.TryDo(fmt.Errorf("%s: the reply comes from %s", q, r.From))
	}
	return r
}

// want asks and compares: no records mean that there must be no such name.
func want(ctx context.Context, q dns.Question, records ...string) error {
	r := ask(ctx, q)
	code := dnsmessage.RCodeSuccess
	if len(records) == 0 {
		code = dnsmessage.RCodeNameError
	}
	slices.Sort(records)
	if r.Code != code || !slices.Equal(r.Records, records) {
		return fmt.Errorf("%s: %v %v, want %v %v", q, r.Code, r.Records, code, records)
	}
	return nil
}

func typeOf(a netip.Addr) dnsmessage.Type {
	if a.Is4() {
		return dnsmessage.TypeA
	}
	return dnsmessage.TypeAAAA
}

func inRecord(a netip.Addr) string {
	return strings.TrimPrefix(typeOf(a).String(), "Type") + " " + a.String()
}

func serviceNames() spec.Scenario {
	return spec.Scenario{
		ID: "dns-service-names", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), DNSServer("d1", "n1"), DNSServer("d2", "n2"), DNS(), Backend("a2", "n2"), Service("web"),
		},
		Steps: []spec.Step{{
			Check: func(ctx context.Context, w spec.World) error {
				full := "web." + w.Namespace() + ".svc." + dns.Domain
				for _, family := range w.Lab().Stack().Families() {
					vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
					database := OfFamily(family, "ahostsv4", "ahostsv6")
					for _, name := range []string{
						"web", "web." + w.Namespace(), "web." + w.Namespace() + ".svc", full, full + ".",
					} {
						text := OutputOf(ctx, w, "c1", "getent", database, name)
						if got := strings.Fields(text); len(got) == 0 || got[0] != vip.Addr().String() {
							return fmt.Errorf("in c1, %q is %q, want %s", name, text, vip.Addr())
						}
					}
				}
				return w.Expect(ctx, spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}})
			},
		}},
	}
}

func records() spec.Scenario {
	return spec.Scenario{
		ID: "dns-headless-records", Needs: []spec.Feature{spec.ClusterIP},
		Given: []store.Object{
			Pod("c1", "n1"), DNSServer("d1", "n1"), DNSServer("d2", "n2"), DNS(),
			Backend("a1", "n1", inSubdomain("first", "pods")), Backend("a2", "n2"), Backend("a3", "n3"),
			Service("pods", Headless(), Selecting("web"), ServicePort("http", corev1.ProtocolTCP, 80, 8080)),
			Service("outside", Headless(), Selecting("")), Service("alias", ExternalName("db.example.org")),
		},
		Steps: []spec.Step{
			{
				Name: "a3 is not ready", Do: []spec.Action{Readiness("a3", false), listOutside}, Check: checkRecords("a1", "a2"),
			},
			{
				Name: "a3 is ready, a2 is gone", Do: []spec.Action{Readiness("a3", true), Delete("Pod", "a2")},
				Check: checkRecords("a1", "a3"),
			},
		},
	}
}

// inSubdomain gives a pod a hostname below a headless Service.
func inSubdomain(hostname, subdomain string) PodOption {
	return func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = hostname, subdomain }
}

// listOutside writes Endpoints by hand: the host client is behind the Service outside.
var listOutside = spec.Action{Name: "write Endpoints outside", Run: func(_ context.Context, w spec.World) error {
	e := &corev1.Endpoints{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"}, ObjectMeta: metav1.ObjectMeta{Name: "outside"},
		Subsets: []corev1.EndpointSubset{{Ports: []corev1.EndpointPort{{Port: 5432}}}},
	}
	for _, f := range w.Lab().Stack().Families() {
		e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: w.Lab().Client().Addr(f).String()})
	}
	return w.Apply(e)
}}

// checkRecords asks for everything, where the pods are the ready ones, a1 among them.
func checkRecords(pods ...string) Check {
	return func(ctx context.Context, w spec.World) error {
		spec.TryDo(w.Settle(ctx))
		for _, family := range w.Lab().Stack().Families() {
			for _, proto := range []string{"udp", "tcp"} {
				spec.TryDo(checkFamily(ctx, w, question(w, "c1", proto, family), family, pods))
			}
		}
		return nil
	}
}

func checkFamily(ctx context.Context, w spec.World, q dns.Question, family lab.Family, pods []string) error {
	domain := w.Namespace() + ".svc." + dns.Domain
	var ready, srv []string
	for _, f := range w.Lab().Stack().Families() {
		for _, name := range pods {
			p := spec.Must(w.Host(name))
			if f == family {
				ready = append(ready, inRecord(p.Addr(f)))
			}
			host := strings.NewReplacer(".", "-", ":", "-").Replace(p.Addr(f).String())
			if name == "a1" {
				host = "first"
			}
			srv = append(srv, "SRV 8080 "+host+".pods."+domain)
		}
	}
	slices.Sort(srv)
	srv = slices.Compact(srv) // a1 has one name in both families
	a1 := spec.Must(w.Host("a1"))
	address := typeOf(a1.Addr(family))
	for _, x := range []struct {
		name    string
		kind    dnsmessage.Type
		records []string
	}{
		{"pods." + domain, address, ready},
		{"first.pods." + domain, address, []string{inRecord(a1.Addr(family))}},
		{"second.pods." + domain, address, nil},
		{"_http._tcp.pods." + domain, dnsmessage.TypeSRV, srv},
		{"outside." + domain, address, []string{inRecord(w.Lab().Client().Addr(family))}},
		{"alias." + domain, address, []string{"CNAME db.example.org"}},
	} {
		q.Name, q.Type = x.name, x.kind
		spec.TryDo(want(ctx, q, x.records...))
	}
	return nil
}
