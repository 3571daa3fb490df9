// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// habit is how schedulers of a kind pick an endpoint, and how that shows.
type habit struct {
	why   string
	given func() []store.Object
	show  func(context.Context, spec.World, lab.Family) error
}

var ipvsInTurn = habit{
	why:   "takes the endpoints in turn",
	given: func() []store.Object { return append(endpoints(), Pod("c1", "n1"), Service("web")) },
	show: func(ctx context.Context, w spec.World, f lab.Family) error {
		var picked []string
		for range 12 {
			picked = append(picked, pick(ctx, w, "c1", "web", f))
		}
		for i, server := range picked {
			if i < 3 && slices.Contains(picked[:i], server) || i >= 3 && server != picked[i-3] {
				return fmt.Errorf("they are not taken in turn: %v", picked)
			}
		}
		return nil
	},
}

// leastBusy begins with one endpoint, which gets some connections that stay open. A second one gets all that are made
// then, until it has as many.
var leastBusy = habit{
	why: "takes the endpoint that has the fewest connections",
	given: func() []store.Object {
		return []store.Object{Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Service("web")}
	},
	show: func(ctx context.Context, w spec.World, f lab.Family) (err error) {
		var open []*traffic.Conn
		defer func() {
			for _, c := range open {
				err = errors.Join(err, c.Close())
			}
		}()
		for _, want := range []string{"a1", "a2"} {
			RunActions(ctx, w, Readiness("a2", want == "a2"))
			spec.TryDo(w.Settle(ctx))
			for i := range 4 {
				conn, server := connect(ctx, w, "c1", "web", f)
				open = append(open, conn)
				if server != want {
					return fmt.Errorf("a1 was alone until it had 4 connections; number %d of the 4 meant for %s goes to %s", i+1,
						want, server)
				}
			}
		}
		return nil
	},
}

var bySource = habit{
	why:   "sends a client to the same endpoint every time, and different clients to different ones",
	given: func() []store.Object { return slices.Concat(endpoints(), clients(), []store.Object{Service("web")}) },
	show: func(ctx context.Context, w spec.World, f lab.Family) error {
		return sticks(func(client int) string { return pick(ctx, w, fmt.Sprintf("client-%d", client), "web", f) },
			"client")
	},
}

// byDestination has many clients: a hash of the source may lead two alike, and at each address to another endpoint.
var byDestination = habit{
	why:   "sends all connections to an address to one endpoint, and those to different addresses to different ones",
	given: func() []store.Object { return slices.Concat(endpoints(), clients(), services()) },
	show: func(ctx context.Context, w spec.World, f lab.Family) error {
		from := 0
		return sticks(func(address int) string {
			from = (from + 1) % many
			return pick(ctx, w, fmt.Sprintf("client-%d", from), fmt.Sprintf("web-%d", address), f)
		}, "address")
	},
}

// sticks picks four times for each of many and wants always the same, but not the same for all.
func sticks(pick func(int) string, what string) error {
	servers := map[string]bool{}
	for i := range many {
		first := ""
		for range 4 {
			server := pick(i)
			if first == "" {
				first = server
			}
			if server != first {
				return fmt.Errorf("%s %d is sent to %s, then to %s", what, i, first, server)
			}
			servers[server] = true
		}
	}
	if len(servers) == 1 {
		return fmt.Errorf("every %s is sent to one and the same endpoint", what)
	}
	return nil
}

// firstPort is the first of the ports that byHash connects from.
const firstPort = 20001

// byHash compares two Services with the same endpoints: kube-proxy has the client's port in the hash, so that one
// client is spread.
var byHash = habit{
	why: "picks by the client's address and port alone, on all virtual servers with the same endpoints alike",
	given: func() []store.Object {
		return append(endpoints(), Pod("c1", "n1"), Service("web"), Service("twin", Selecting("web")))
	},
	show: func(ctx context.Context, w spec.World, f lab.Family) error {
		picked, servers := map[uint16]string{}, map[string]bool{}
		for port := uint16(firstPort); port < firstPort+many; port++ {
			server := pickFrom(ctx, w, "c1", port, "web", f)
			picked[port], servers[server] = server, true
		}
		if len(servers) == 1 {
			return errors.New("every port leads to one and the same endpoint")
		}
		// The other way round, so that schedulers that take turns do not agree by keeping step.
		for port := uint16(firstPort + many - 1); port >= firstPort; port-- {
			server := pickFrom(ctx, w, "c1", port, "twin", f)
			if server != picked[port] {
				return fmt.Errorf("from port %d one Service leads to %s, the other to %s", port, picked[port], server)
			}
		}
		return nil
	},
}

// pick makes a connection to a Service and returns the name of the pod that got it.
func pick(ctx context.Context, w spec.World, from, service string, f lab.Family) string {
	conn, server := connect(ctx, w, from, service, f)
	spec.MustDo(conn.Close())
	return server
}

// connect is pick with the connection left open.
func connect(ctx context.Context, w spec.World, from, service string, f lab.Family) (*traffic.Conn, string) {
	conn, answer, err := w.Probe(ctx, from, spec.ClusterIPOf(service, 80), f, "tcp")
	if err == nil && conn == nil {
		err = fmt.Errorf("%s does not reach %s: %s", from, service, answer)
	}
	return spec.Try(conn, err), podOf(w, answer)
}

// podOf is the pod that answered.
func podOf(w spec.World, a traffic.Answer) string {
	return strings.TrimPrefix(a.Server, w.Namespace()+"/")
}

// pickFrom is pick from a given port.
func pickFrom(ctx context.Context, w spec.World, from string, port uint16, service string, f lab.Family) string {
	h := spec.Must(w.Host(from))
	to := spec.Must(w.Resolve(spec.ClusterIPOf(service, 80), f, "tcp"))
	answer := traffic.Probe{From: h.NS, Source: netip.AddrPortFrom(h.Addr(f), port), To: to, Proto: "tcp"}.Do(ctx)
	spec.MustDo(answer.Fault)
	if answer.Outcome != traffic.Reply {
		spec.TryDo(fmt.Errorf("%s does not reach %s: %s", from, service, answer))
	}
	return podOf(w, answer)
}
