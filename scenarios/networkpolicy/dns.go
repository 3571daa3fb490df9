// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab"
	server "github.com/viplab/viplab/lab/cluster/dns"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// dns are the scenarios of pods that may ask for names, or not.
func dns() []spec.Scenario {
	return []spec.Scenario{{
		ID:    "np-dns",
		Needs: keepsSource,
		Given: []store.Object{
			echo("a1", "n1"), Pod("like-dns", "n2", App("like-dns"), TCP(server.Port), UDP(server.Port)), DNSServer("d2", "n2"),
			DNS(),
			Service("like-dns", Selecting("like-dns"), Port(server.Port, server.Port), UDPPort(server.Port, server.Port)),
			echo("web-2", "n2", App("web")), Service("web"), policy("deny", pod("a1"), egress()),
		},
		Steps: []spec.Step{
			{Name: "nothing is allowed", Rows: onPort53(spec.Row{Want: denied})},
			{
				Name: "port 53 is allowed", Do: do(Apply(policy("dns", pod("a1"),
					egress(allow().on(corev1.ProtocolUDP, server.Port).on(corev1.ProtocolTCP, server.Port))))),
				Rows: append(onPort53(spec.Row{By: []string{"like-dns"}}),
					spec.Row{From: "a1", To: spec.ClusterIPOf("web", 80), Want: denied},
					spec.Row{From: "a1", To: spec.HostAt("web-2", 8080), Want: denied}),
				Check: func(ctx context.Context, w spec.World) error {
					var errs []error
					for _, f := range w.Lab().Stack().Families() {
						errs = append(errs, findsOut(ctx, w, "udp", f), findsOut(ctx, w, "tcp", f))
					}
					return errors.Join(errs...)
				},
			},
		},
	}}
}

// onPort53 are rows to a server that tells who asks it, where a DNS server would be: a question that is not answered
// takes as long as a resolver waits.
func onPort53(row spec.Row) []spec.Row {
	var rows []spec.Row
	for _, proto := range []string{"udp", "tcp"} {
		row.From, row.To, row.Proto = "a1", spec.ClusterIPOf("like-dns", server.Port), proto
		rows = append(rows, row)
	}
	return rows
}

// findsOut has a1 ask the cluster's DNS for the address of the Service web.
func findsOut(ctx context.Context, w spec.World, proto string, f lab.Family) error {
	from, err := w.Host("a1")
	if err != nil {
		return err
	}
	q := server.Question{From: from.NS, Proto: proto, Name: "web." + w.Namespace() + ".svc." + server.Domain,
		Type: dnsmessage.TypeA}
	if f == lab.V6 {
		q.Type = dnsmessage.TypeAAAA
	}
	if q.Server, err = w.Resolve(spec.ClusterIPOf("kube-dns", server.Port), f, proto); err != nil {
		return err
	}
	if reply, err := q.Do(ctx); err != nil || len(reply.Records) != 1 {
		return fmt.Errorf("%s: %q %w", q, reply.Records, err)
	}
	return nil
}
