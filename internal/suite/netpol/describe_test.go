// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	cases, err := decode("p.yaml", []byte(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: x}
spec:
  podSelector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}
  ingress:
  - from:
    - {podSelector: {matchLabels: {pod: b}}, namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [red, blue]}]}}
    - ipBlock: {cidr: 10.244.0.0/16, except: [10.244.2.0/24]}
    ports: [{port: 80}, {port: dns, protocol: UDP}, {protocol: UDP, port: 53, endPort: 60}, {protocol: SCTP}]
  - {}
  egress: [{to: [{podSelector: {}}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: q, namespace: "y"}
spec: {podSelector: {matchLabels: {pod: d}}, policyTypes: [Egress], ingress: [{}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := `Policy x/p is about pods whose label tier is absent in namespace x (x/a, x/c).
  What they may get:
  - from pods whose label pod is "b" in namespaces whose label team is absent or not "red" or "blue"; or addresses of 10.244.0.0/16 but for 10.244.2.0/24, on TCP port 80; or the UDP port that the target calls "dns"; or UDP ports 53 to 60; or every SCTP port
  - from anybody, on all ports
  What they may send:
  - to all pods in its own namespace, on all ports
Policy y/q is about pods whose label pod is "d" in namespace y (none).
  What they may send: nothing.
`
	var got strings.Builder
	if err := Describe(&got, cases[0]); err != nil || got.String() != want {
		t.Errorf("%v:\n%s\nwant:\n%s", err, got.String(), want)
	}
}
