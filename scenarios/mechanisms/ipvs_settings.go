// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// ipvsTimeouts differ from the kernel's, which are 900, 120 and 300 s.
var ipvsTimeouts = spec.IPVSTimeouts{TCP: 1000 * time.Second, TCPFin: 100 * time.Second, UDP: 200 * time.Second}

// ipvsConfigured is a cluster for scenarios of settings that have no effect on each other.
func ipvsConfigured() *spec.ClusterConfig {
	return &spec.ClusterConfig{Shared: true, Nodes: []string{"n1"}, Proxy: spec.ProxyConfig{
		IPVSTimeouts: ipvsTimeouts,
		IPVSExcludeCIDRs: []netip.Prefix{
			netip.MustParsePrefix("198.51.100.240/29"), netip.MustParsePrefix("2001:db8:51::240/125"),
		},
	}}
}

// configuredTimeouts reads the timeouts of n1 as ipvsadm prints them.
func configuredTimeouts() spec.Scenario {
	return spec.Scenario{
		ID: "rs-ipvs-timeouts", Cluster: ipvsConfigured(), Needs: []spec.Feature{spec.IPVS, spec.ClusterIP},
		Given: NearAndFar(),
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			want := fmt.Sprintf("%.0f %.0f %.0f", ipvsTimeouts.TCP.Seconds(), ipvsTimeouts.TCPFin.Seconds(),
				ipvsTimeouts.UDP.Seconds())
			if text := OutputOf(ctx, w, "n1", "ipvsadm", "-l", "--timeout"); !strings.Contains(text, ": "+want) {
				return fmt.Errorf("the timeouts for TCP, FIN and UDP are not %s: %s", want, strings.TrimSpace(text))
			}
			return nil
		}}},
	}
}

// excludedRanges has a virtual server of an administrator in an excluded range.
func excludedRanges() spec.Scenario {
	theirs := ExternalIP(241)
	theirs.V6 = "2001:db8:51::241"
	row := spec.Row{From: "c1", To: theirs, Servers: []string{"a2"}}
	return spec.Scenario{
		ID: "rs-ipvs-excluded-ranges", Cluster: ipvsConfigured(), Needs: []spec.Feature{spec.IPVS, spec.ClusterIP},
		Given: []store.Object{Pod("c1", "n1"), Backend("a2", "n2"), Service("web")},
		Steps: []spec.Step{
			{Name: "before", Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}}}},
			{Name: "an administrator makes a virtual server", Do: []spec.Action{
				AddAddress("n1", theirs.V4, theirs.V6), {Name: "virtual server on n1", Run: EachFamily(makeServer(theirs, "a2"))},
			}, Rows: []spec.Row{row}},
			{Name: "after changes of Services", Do: []spec.Action{
				Apply(Service("new", Selecting("web"))), Readiness("a2", false), Readiness("a2", true),
			}, Rows: []spec.Row{{From: "c1", To: spec.ClusterIPOf("new", 80), Servers: []string{"a2"}}, row}},
		},
	}
}

// makeServer has n1 balance connections to a target over a pod.
func makeServer(at spec.Target, pod string) func(context.Context, spec.World, lab.Family) error {
	return func(ctx context.Context, w spec.World, f lab.Family) error {
		server := spec.Must(w.Resolve(at, f, "tcp")).String()
		to := netip.AddrPortFrom(spec.Must(w.Host(pod)).Addr(f), 8080).String()
		spec.Must(w.Run(ctx, "n1", "ipvsadm", "-A", "-t", server, "-s", "rr"))
		spec.Must(w.Run(ctx, "n1", "ipvsadm", "-a", "-t", server, "-r", to, "-m"))
		return nil
	}
}
