// Package udp holds the scenarios of UDP Services.
package udp

import (
	"github.com/viplab/viplab/lab/kube"
	. "github.com/viplab/viplab/scenarios/given"
	"github.com/viplab/viplab/suite/spec"
)

// Scenarios are the group's scenarios.
var Scenarios = []spec.Scenario{
	{
		ID: "udp-clusterip-and-nodeport", Group: "udp", Priority: spec.P0,
		Source: "e2e networking.go 'function for pod-Service: udp'; e2e service.go 'basic nodePort: udp functionality'",
		Why:    "A datagram to a ClusterIP or NodePort is answered from that address, and new source ports spread over the pods.",
		Needs:  []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []kube.Object{
			Pod("c1", "n1"), Pod("a1", "n1", App("dns"), UDP(5353)), Pod("a2", "n2", App("dns"), UDP(5353)),
			Service("dns", UDPPort(53, 5353), NodePort()),
		},
		Steps: []spec.Step{{Rows: []spec.Row{
			{From: "c1", To: spec.ClusterIPOf("dns", 53), Proto: "udp", Times: 60, By: []string{"a1", "a2"}, Even: true},
			{From: "client", To: spec.NodePortAt("n1", "dns", 53), Proto: "udp", Times: 60, By: []string{"a1", "a2"}, Even: true},
		}}},
	},
}
