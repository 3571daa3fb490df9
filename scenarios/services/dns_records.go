// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// moreRecords returns the scenarios of records that are not plain addresses, asked through the DNS Service.
func moreRecords() []spec.Scenario {
	given := func(more ...store.Object) []store.Object {
		return append([]store.Object{Pod("c1", "n1"), DNSServer("d1", "n1"), DNSServer("d2", "n2"), DNS()}, more...)
	}
	return []spec.Scenario{
		{
			ID: "dns-service-ports", Needs: []spec.Feature{spec.ClusterIP},
			Given: given(Backend("a2", "n2"), Service("web", ServicePort("http", corev1.ProtocolTCP, 80, 8080),
				ServicePort("names", corev1.ProtocolUDP, 5353, 8080))),
			Steps: []spec.Step{{Do: []spec.Action{NewAction("apply single", func(w spec.World) error {
				return w.Apply(Service("single", Selecting("web"), InFamilies(OfFamily(w.Lab().Stack().Families()[0],
					corev1.IPv4Protocol, corev1.IPv6Protocol))))
			})}, Check: eachQuestion(checkPorts)}},
		},
		{
			ID: "dns-reverse", Needs: []spec.Feature{spec.ClusterIP},
			Given: given(Backend("a2", "n2", inSubdomain("first", "pods")), Service("web"),
				Service("pods", Headless(), Selecting("web"))),
			Steps: []spec.Step{{Check: eachQuestion(checkReverse)}},
		},
		{
			ID: "dns-publish-not-ready", Needs: []spec.Feature{spec.ClusterIP},
			Given: given(Backend("a1", "n1"), Backend("a2", "n2"), Service("ready", Headless(), Selecting("web")),
				Service("all", Headless(), Selecting("web"), PublishNotReady())),
			Steps: []spec.Step{
				{Name: "a2 is not ready", Do: []spec.Action{Readiness("a2", false)},
					Check: checkPods(map[string][]string{"ready": {"a1"}, "all": {"a1", "a2"}})},
				{Name: "the Services change roles", Do: []spec.Action{
					Edit("all", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false }),
					Edit("ready", func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
				}, Check: checkPods(map[string][]string{"all": {"a1"}, "ready": {"a1", "a2"}})},
			},
		},
	}
}

// eachQuestion returns a check that asks in every IP family over both transports, from c1.
func eachQuestion(check func(ctx context.Context, w spec.World, f lab.Family, q dns.Question) error) Check {
	return func(ctx context.Context, w spec.World) error {
		spec.TryDo(w.Settle(ctx))
		for _, f := range w.Lab().Stack().Families() {
			for _, proto := range []string{"udp", "tcp"} {
				spec.TryDo(check(ctx, w, f, question(w, "c1", proto, f)))
			}
		}
		return nil
	}
}

// checkPorts asks for the ports of the Service web, for types and ports that it does not have, and for the address that
// the Service single does not have.
func checkPorts(ctx context.Context, w spec.World, _ lab.Family, q dns.Question) error {
	web := "web." + w.Namespace() + ".svc." + dns.Domain
	for name, record := range map[string]string{"_http._tcp.": "SRV 80 " + web, "_names._udp.": "SRV 5353 " + web} {
		q.Name, q.Type = name+web, dnsmessage.TypeSRV
		spec.TryDo(want(ctx, q, record))
		q.Type = dnsmessage.TypeA
		spec.TryDo(wantNoRecords(ctx, q))
	}
	q.Name, q.Type = "_http._udp."+web, dnsmessage.TypeSRV
	spec.TryDo(want(ctx, q))
	q.Name, q.Type = web, dnsmessage.TypeTXT
	spec.TryDo(wantNoRecords(ctx, q))
	q.Name = "single." + w.Namespace() + ".svc." + dns.Domain
	q.Type = OfFamily(w.Lab().Stack().Families()[0], dnsmessage.TypeAAAA, dnsmessage.TypeA) // the other family
	return wantNoRecords(ctx, q)
}

// checkReverse asks for the names of a ClusterIP, of an endpoint of a headless Service, and of a pod of none.
func checkReverse(ctx context.Context, w spec.World, f lab.Family, q dns.Question) error {
	domain := "." + w.Namespace() + ".svc." + dns.Domain
	q.Type = dnsmessage.TypePTR
	q.Name = dns.ReverseName(spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), f, "tcp")).Addr())
	spec.TryDo(want(ctx, q, "PTR web"+domain))
	q.Name = dns.ReverseName(spec.Must(w.Host("a2")).Addr(f))
	spec.TryDo(want(ctx, q, "PTR first.pods"+domain))
	q.Name = dns.ReverseName(spec.Must(w.Host("c1")).Addr(f))
	return want(ctx, q)
}

// checkPods wants headless Services to stand for these pods.
func checkPods(pods map[string][]string) Check {
	return eachQuestion(func(ctx context.Context, w spec.World, f lab.Family, q dns.Question) error {
		for service, names := range pods {
			var records []string
			for _, name := range names {
				records = append(records, inRecord(spec.Must(w.Host(name)).Addr(f)))
			}
			q.Name, q.Type = service+"."+w.Namespace()+".svc."+dns.Domain, OfFamily(f, dnsmessage.TypeA, dnsmessage.TypeAAAA)
			spec.TryDo(want(ctx, q, records...))
		}
		return nil
	})
}

// wantNoRecords wants the name to exist, without a record of the type (NODATA, RFC 2308 2.2).
func wantNoRecords(ctx context.Context, q dns.Question) error {
	if r := ask(ctx, q); r.Code != dnsmessage.RCodeSuccess || len(r.Records) > 0 {
		return fmt.Errorf("%s: %v %v, want no error and no record", q, r.Code, r.Records)
	}
	return nil
}
