// SPDX-License-Identifier: Apache-2.0

package packets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	return []spec.Scenario{
		{
			ID: "sctp-clusterip-nodeport", Needs: []spec.Feature{spec.SCTP, spec.ClusterIP, spec.NodePort,
				spec.SourceAddress},
			Given: []store.Object{
				Pod("c1", "n1"), backend("a1", "n1"), backend("a2", "n2"),
				Service("web", NodePort(), SCTPPort(port, port)),
			},
			Steps: []spec.Step{{Check: overSCTP(func(ctx context.Context, w spec.World, family lab.Family) error {
				for _, x := range []association{
					{from: "c1", to: spec.ClusterIPOf("web", port), itself: true},
					{from: "n1", to: spec.ClusterIPOf("web", port)},
					{from: "client", to: spec.NodePortAt("n1", "web", port)},
					{from: "client", to: spec.NodePortAt("n3", "web", port)},
				} {
					spec.TryDo(reachesBoth(ctx, w, x, family, "a1", "a2"))
				}
				return nil
			})}},
		},
		{
			ID: "sctp-etp-local-source", Needs: []spec.Feature{spec.SCTP, spec.NodePort, spec.ETPLocal,
				spec.SourceAddress},
			Given: []store.Object{
				backend("a1", "n1"), backend("a2", "n2"), Service("web", NodePort(), ETPLocal(), SCTPPort(port, port)),
			},
			Steps: []spec.Step{{Check: overSCTP(func(ctx context.Context, w spec.World, family lab.Family) error {
				for node, pod := range map[string]string{"n1": "a1", "n2": "a2"} {
					for range 5 {
						x := association{from: "client", to: spec.NodePortAt(node, "web", port), itself: true}
						if a := x.open(ctx, w, family); a.Server != pod {
							return fmt.Errorf("an association from client to %s was served by %s, not by %s", x.to,
								a.Server, pod)
						}
					}
				}
				return nil
			})}},
		},
		multihoming(), noModule(), sctpHairpin(), lateSCTPAddress(),
	}
}

// port is that of Services and pods.
const port = 3868 // Diameter, RFC 6733, which speaks SCTP

// backend is a pod behind the Service web.
func backend(name, node string) *corev1.Pod { return Pod(name, node, App("web"), SCTP(port)) }

// associations is how many are opened to see both of two pods: that one gets none happens once in 2^29 runs.
const associations = 30

// sctpHairpin has two pods behind a Service, each of which reaches both.
func sctpHairpin() spec.Scenario {
	return spec.Scenario{
		ID: "sctp-hairpin", Needs: []spec.Feature{spec.SCTP, spec.ClusterIP, spec.NodePort},
		Given: []store.Object{backend("a1", "n1"), backend("b1", "n1"), Service("web", NodePort(), SCTPPort(port, port))},
		Steps: []spec.Step{{Check: overSCTP(func(ctx context.Context, w spec.World, family lab.Family) error {
			for _, pod := range []string{"a1", "b1"} {
				for _, to := range []spec.Target{spec.ClusterIPOf("web", port), spec.NodePortAt("n1", "web", port)} {
					spec.TryDo(reachesBoth(ctx, w, association{from: pod, to: to}, family, "a1", "b1"))
				}
			}
			return nil
		})}},
	}
}

// reachesBoth opens associations until each of two pods has served one.
func reachesBoth(ctx context.Context, w spec.World, x association, family lab.Family, pods ...string) error {
	served := map[string]bool{}
	for i := 0; len(served) < len(pods) && i < associations; i++ {
		server := x.open(ctx, w, family).Server
		if !slices.Contains(pods, server) {
			return fmt.Errorf("an association from %s to %s was served by %s, not by %v", x.from, x.to, server, pods)
		}
		served[server] = true
	}
	if len(served) < len(pods) {
		return fmt.Errorf("%d associations from %s to %s were served by %v, not by %v", associations, x.from, x.to,
			slices.Collect(maps.Keys(served)), pods)
	}
	return nil
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

// association is one to open, and what the pod must see.
type association struct {
	from   string
	to     spec.Target
	itself bool // the pod sees the client's own address and port
	listed []netip.Addr
}

func (x association) open(ctx context.Context, w spec.World, family lab.Family) sctp.Answer {
	from := spec.Must(w.Host(x.from))
	to := spec.Must(w.Resolve(x.to, family, "sctp"))
	ctx, cancel := WithPatience(ctx)
	defer cancel()
	a := spec.Try(sctp.Dial{From: from.NS, To: to, Listed: x.listed}.Do(ctx))
	a.Server = strings.TrimPrefix(a.Server, w.Namespace()+"/")
	if x.itself && a.Peer != a.Source {
		spec.TryDo(fmt.Errorf("%s -> %s %s: %s saw %s (the client is %s)", x.from, x.to, family, a.Server, a.Peer,
			a.Source))
	}
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
			Check: overSCTP(func(ctx context.Context, w spec.World, family lab.Family) error {
				spec.TryDo(w.Settle(ctx))
				at := spec.HostAt("n1", nodePort)
				for _, to := range []spec.Target{at, at.AtAddr(spec.Secondary),
					spec.AddrAt("198.51.100.130", "2001:db8:51::130", nodePort)} {
					if a := (association{from: "client", to: to}).open(ctx, w, family); a.Server != "a2" {
						return fmt.Errorf("an association from client to %s was served by %q, not by a2", to, a.Server)
					}
				}
				return nil
			}),
		}},
	}
}
