// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"slices"

	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// hiddenDaemon has a daemon of n1 that listens on all addresses, and a Service with an address of each kind.
func hiddenDaemon() spec.Scenario {
	const daemon = 8219
	externalIP, loadBalancer, everybody := ExternalIP(219), LoadBalancerIP(219), []string{"c1", "n1", "client"}
	var served, hidden []spec.Row
	for _, to := range []spec.Target{spec.ClusterIPRaw("web", 80), externalIP, loadBalancer} {
		senders := everybody
		if to.Kind == spec.VIP {
			senders = everybody[:2]
		}
		served = append(served, FromEach(spec.Row{To: to, Servers: []string{"a2"}}, senders...)...)
		to.Port = daemon
		hidden = append(hidden, FromEach(spec.Row{To: to, Want: spec.NotServed}, senders...)...)
	}
	return spec.Scenario{
		ID: "sec-daemon-hidden", Needs: []spec.Feature{spec.ClusterIP, spec.ExternalIPs, spec.LoadBalancer},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"),
			Service("web", LoadBalancer(), ExternalIPs(externalIP.V4, externalIP.V6))},
		Steps: []spec.Step{{
			Do: append(IngressViaN1("web", loadBalancer.V4, loadBalancer.V6),
				RouteVia("client", externalIP.V4, externalIP.V6, "n1"), Serve("n1", "tcp", daemon)),
			Rows: slices.Concat(served, hidden,
				FromEach(spec.Row{To: spec.HostAt("n1", daemon), Servers: []string{"n1"}}, everybody...)),
		}},
	}
}
