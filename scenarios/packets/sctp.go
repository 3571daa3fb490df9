// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/lab/sctp"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// sctpScenarios returns the scenarios of Services with SCTP ports.
func sctpScenarios() []spec.Scenario {
	both := []string{"a1", "a2"}
	return []spec.Scenario{
		{
			ID: "sctp-clusterip-nodeport", Needs: []spec.Feature{spec.SCTP, spec.ClusterIP, spec.NodePort,
				spec.SourceAddress},
			Given: []store.Object{
				Pod("c1", "n1"), backend("a1", "n1"), backend("a2", "n2"),
				Service("web", NodePort(), SCTPPort(port, port)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", port), Proto: "sctp", Servers: both, Even: true,
					SeenAs: spec.ClientAddr()},
				{From: "n1", To: spec.ClusterIPOf("web", port), Proto: "sctp", Servers: both, Even: true},
				{From: "client", To: spec.NodePortAt("n1", "web", port), Proto: "sctp", Servers: both, Even: true},
				{From: "client", To: spec.NodePortAt("n3", "web", port), Proto: "sctp", Servers: both, Even: true},
			}}},
		},
		{
			ID: "sctp-etp-local-source", Needs: []spec.Feature{spec.SCTP, spec.NodePort, spec.ETPLocal,
				spec.SourceAddress},
			Given: []store.Object{
				backend("a1", "n1"), backend("a2", "n2"), Service("web", NodePort(), ETPLocal(), SCTPPort(port, port)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "client", To: spec.NodePortAt("n1", "web", port), Proto: "sctp", Times: 5,
					Servers: []string{"a1"}, SeenAs: spec.ClientAddr()},
				{From: "client", To: spec.NodePortAt("n2", "web", port), Proto: "sctp", Times: 5,
					Servers: []string{"a2"}, SeenAs: spec.ClientAddr()},
			}}},
		},
		{
			ID: "sctp-affinity", Needs: []spec.Feature{spec.SCTP, spec.ClusterIP, spec.NodePort, spec.SessionAffinity},
			Given: []store.Object{
				Pod("c1", "n1"), backend("a1", "n1"), backend("a2", "n2"),
				Service("web", NodePort(), Affinity(), SCTPPort(port, port)),
			},
			Steps: []spec.Step{{Rows: []spec.Row{
				{From: "c1", To: spec.ClusterIPOf("web", port), Proto: "sctp", Servers: both, Sticky: true},
				{From: "client", To: spec.NodePortAt("n1", "web", port), Proto: "sctp", Servers: both, Sticky: true},
			}}},
		},
		multihoming(), noModule(), sctpHairpin(), lateSCTPAddress(),
	}
}

// port is that of Services and pods.
const port = 3868 // Diameter, RFC 6733, which speaks SCTP

// backend is a pod behind the Service web.
func backend(name, node string) *corev1.Pod { return Pod(name, node, App("web"), SCTP(port)) }

// sctpHairpin has two pods behind a Service, each of which reaches both.
func sctpHairpin() spec.Scenario {
	row := spec.Row{Proto: "sctp", Servers: []string{"a1", "b1"}, Even: true}
	var rows []spec.Row
	for _, to := range []spec.Target{spec.ClusterIPOf("web", port), spec.NodePortAt("n1", "web", port)} {
		row.To = to
		rows = append(rows, FromEach(row, "a1", "b1")...)
	}
	return spec.Scenario{
		ID: "sctp-hairpin", Needs: []spec.Feature{spec.SCTP, spec.ClusterIP, spec.NodePort},
		Given: []store.Object{backend("a1", "n1"), backend("b1", "n1"), Service("web", NodePort(), SCTPPort(port, port))},
		Steps: []spec.Step{{Rows: rows}},
	}
}

// multihoming records a limit that all translation in the kernel has: addresses inside of chunks are not rewritten.
func multihoming() spec.Scenario {
	return spec.Scenario{
		ID: "sctp-multihoming-limits", Needs: []spec.Feature{spec.SCTP, spec.ClusterIP, spec.NodePort, spec.KernelNAT},
		Given: []store.Object{
			Pod("c1", "n1"), backend("a2", "n2"), Service("web", NodePort(), SCTPPort(port, port)),
		},
		Steps: []spec.Step{{Check: overSCTP(func(ctx context.Context, w spec.World, family lab.Family) error {
			listed := map[lab.Family][]netip.Addr{
				lab.V4: {netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.8")},
				lab.V6: {netip.MustParseAddr("2001:db8:51::7"), netip.MustParseAddr("2001:db8:51::8")},
			}[family]
			for from, to := range map[string]spec.Target{"c1": spec.ClusterIPOf("web", port),
				"client": spec.NodePortAt("n1", "web", port)} {
				a := association{from: from, to: to, listed: listed}.open(ctx, w, family)
				if !slices.Equal(a.Listed, listed) {
					return fmt.Errorf("%s named the addresses %v to %s, and a2 was told %v", from, listed, to, a.Listed)
				}
				if rewritten := a.Peer.Addr() != a.Source.Addr(); from == "client" && !rewritten {
					return fmt.Errorf("the NodePort of n1 showed a2, on another node, the client's own address %s", a.Peer)
				}
			}
			return nil
		})}},
	}
}

// noModule is about kernels whose SCTP is a module that loads when a process opens an SCTP socket. Where it is loaded
// already, or missing, only the traffic is judged.
func noModule() spec.Scenario {
	return spec.Scenario{
		ID: "sctp-no-module-side-effect", Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: []store.Object{Pod("c1", "n1"), Pod("a2", "n2", App("web"), TCP(8080))},
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			before := loaded()
			if before {
				w.Note("not tried: whether a Service loads the kernel's SCTP, as it is loaded")
			}
			spec.MustDo(w.Apply(Service("web", NodePort(), Port(80, 8080), SCTPPort(port, port))))
			spec.TryDo(w.Expect(ctx,
				spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: []string{"a2"}},
				spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: []string{"a2"}},
			))
			if loaded() && !before {
				return errors.New("the kernel's SCTP was loaded when the Service came")
			}
			return nil
		}}},
	}
}

// loaded reports whether the kernel speaks SCTP now.
func loaded() bool {
	_, err := os.Stat("/proc/net/sctp")
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	spec.MustDo(err)
	return true
}

// association is one to open.
type association struct {
	from   string
	to     spec.Target
	listed []netip.Addr
}

func (x association) open(ctx context.Context, w spec.World, family lab.Family) sctp.Answer {
	from := spec.Must(w.Host(x.from))
	to := spec.Must(w.Resolve(x.to, family, "sctp"))
	ctx, cancel := WithPatience(ctx)
	defer cancel()
	a := spec.Try(sctp.Dial{From: from.NS, To: to, Listed: x.listed}.Do(ctx))
	a.Server = strings.TrimPrefix(a.Server, w.Namespace()+"/")
	return a
}

// overSCTP returns a check of every family, on a machine that can open associations.
func overSCTP(check func(context.Context, spec.World, lab.Family) error) Check {
	return func(ctx context.Context, w spec.World) error {
		spec.MustDo(sctp.Available())
		for _, f := range w.Lab().Stack().Families() {
			spec.TryDo(check(ctx, w, f)) // The other family would wait as long again for an answer that does not come.
		}
		return nil
	}
}

// lateSCTPAddress is nodeport-late-address over SCTP, and looks at the node's second address as well.
func lateSCTPAddress() spec.Scenario {
	const nodePort = 30007
	at := spec.HostAt("n1", nodePort)
	return spec.Scenario{
		ID: "sctp-nodeport-late-address", NodePorts: []uint16{nodePort},
		Needs: []spec.Feature{spec.SCTP, spec.NodePort, spec.NodePortAnyLocalAddress},
		Given: []store.Object{backend("a2", "n2")},
		Steps: []spec.Step{{
			Do: []spec.Action{
				RouteVia("client", "198.51.100.130", "2001:db8:51::130", "n1"),
				Apply(Service("web", NodePort(), SCTPPort(port, port), NodePorts(nodePort))),
				AddAddress("n1", "198.51.100.130", "2001:db8:51::130"), Apply(Service("other", Selecting("web"))),
			},
			Rows: []spec.Row{
				{From: "client", To: at, Proto: "sctp", Servers: []string{"a2"}},
				{From: "client", To: at.AtAddr(spec.Secondary), Proto: "sctp", Servers: []string{"a2"}},
				{From: "client", To: spec.AddrAt("198.51.100.130", "2001:db8:51::130", nodePort), Proto: "sctp",
					Servers: []string{"a2"}},
			},
		}},
	}
}
