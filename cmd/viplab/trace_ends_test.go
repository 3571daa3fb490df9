// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/lab/trace"
)

const forbidding = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: friends}
spec:
  podSelector: {matchLabels: {app: far}}
  ingress: [{from: [{podSelector: {matchLabels: {role: friend}}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: mute}
spec: {podSelector: {matchLabels: {role: mute}}, policyTypes: [Egress]}
---
apiVersion: v1
kind: Pod
metadata: {name: mute, labels: {role: mute}}
spec: {nodeName: n1, containers: [{name: c, image: pause}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {app: nobody}, ports: [{name: http, port: 80, targetPort: 8080}]}
`

// ending is how a packet must end.
type ending struct {
	args    string
	outcome trace.Outcome
	cause   trace.Cause
	place   string
	text    string // contained
}

func (e ending) compare(t *testing.T) {
	t.Helper()
	got := traced(t, strings.Fields(e.args)...).Walk.End
	if got == nil || got.Outcome != e.outcome || got.Cause != e.cause || got.Place != e.place || !strings.Contains(got.Text+got.Why, e.text) {
		t.Errorf("trace %s: %+v, want %+v", e.args, got, e)
	}
}

func TestTraceSaysWhyAPacketEnds(t *testing.T) {
	withLab(t, "--ip", "dual", "--nodes", "2", "-f", write(t, "far.yaml", clientPod), "-f", write(t, "empty.yaml", forbidding))
	closed := "no program there has udp port 99"
	for _, e := range []ending{
		{"c1 far", trace.Delivered, trace.CauseSocket, "default/a1", "come to default/a1"},
		{"c1 empty", trace.Refused, trace.CauseRule, "n1", "The Service default/empty has no ready endpoint."},
		{"client n1:99", trace.Refused, trace.CausePort, "n1", "No program in n1 has tcp port 99"},
		{"client n1:99 --proto udp", trace.Refused, trace.CausePort, "n1", closed},
		{"client n1:99 --proto udp --ip 6", trace.Refused, trace.CausePort, "n1", closed},
		{"c1 pod/a1:99 --proto udp", trace.Refused, trace.CausePort, "default/a1", closed},
		{"c1 9.9.9.9:80", trace.Refused, trace.CauseRoute, "router", "there is no route to 9.9.9.9"},
		{"c1 [2001:db8::1]:80", trace.Refused, trace.CauseRoute, "router", "there is no route to 2001:db8::1"},
		{"n1 10.244.1.77:80", trace.Lost, trace.CauseNeigh, "n1", "next hop to 10.244.1.77"},
	} {
		e.compare(t)
	}
	succeeds(t, "exec", "client", "--", "sysctl", "-w", "net.ipv4.ip_default_ttl=2")
	ending{"client n1:30081", trace.Refused, trace.CauseHops, "n2", "its last hop is over"}.compare(t)
	succeeds(t, "exec", "client", "--", "sysctl", "-w", "net.ipv4.ip_default_ttl=64")
	succeeds(t, "exec", "n2", "--", "ip", "route", "add", "prohibit", "10.244.2.99")
	ending{"c1 10.244.2.99:80", trace.Refused, trace.CauseRoute, "n2", "its route to 10.244.2.99 forbids it"}.compare(t)
	succeeds(t, "exec", "n2", "--", "ip", "route", "add", "blackhole", "10.244.2.98")
	ending{"c1 10.244.2.98:80", trace.Dropped, trace.CauseUnknown, "n2", "n2 has dropped it when it looked for a route"}.compare(t)
	succeeds(t, "exec", "n1", "--", "sh", "-c",
		"sysctl -w net.ipv4.conf.all.rp_filter=1; ip route add 192.168.7.201 dev cni0")
	ending{"client n1:30081", trace.Dropped, trace.CauseFilter, "n1", "TcpExt.IPReversePathFilter"}.compare(t)
}

func TestTraceNamesTheNetworkPolicy(t *testing.T) {
	for _, enforcer := range []string{"policy-nftables", "policy-calico"} {
		t.Run(enforcer, func(t *testing.T) {
			withLab(t, "--ip", "dual", "--nodes", "2", "--pods", "routed", "--enforcer", enforcer, "-f", write(t, "far.yaml", clientPod), "-f",
				write(t, "policies.yaml", forbidding))
			for _, e := range []ending{
				{"c1 far", trace.Dropped, trace.CausePolicy, "n2",
					"The NetworkPolicy default/friends isolates default/a1 for ingress, and does not allow TCP port 8080 from default/c1."},
				{"mute pod/a1 --ip 6", trace.Dropped, trace.CausePolicy, "n1",
					"The NetworkPolicy default/mute isolates default/mute for egress, and does not allow TCP port 8080 of default/a1."},
				{"c1 pod/mute:99", trace.Refused, trace.CausePort, "default/mute", "port 99"},
			} {
				e.compare(t)
			}
		})
	}
}
