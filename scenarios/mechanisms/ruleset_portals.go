// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// userspacePortals accepts REDIRECT, which always leads to the node itself, and DNAT to an address of the node.
func userspacePortals() spec.Scenario {
	return spec.Scenario{
		ID: "rs-userspace-portals", Needs: []spec.Feature{spec.Relays, spec.ClusterIP, spec.NodePort},
		Given: []store.Object{
			Pod("c1", "n1"), Backend("a1", "n1"), Backend("a2", "n2"), Backend("a3", "n3"), Service("web", NodePort()),
		},
		Steps: []spec.Step{
			{Name: "the chains", Check: EachFamily(portals)},
			{Name: "the turns", Check: EachFamily(turns)},
		},
	}
}

// portalChains are where each built-in chain leads, in order: NodePorts come last.
var portalChains = map[string][]string{
	"PREROUTING": {"KUBE-PORTALS-CONTAINER", "KUBE-NODEPORT-CONTAINER"},
	"OUTPUT":     {"KUBE-PORTALS-HOST", "KUBE-NODEPORT-HOST"},
}

func portals(ctx context.Context, w spec.World, family lab.Family) error {
	t := save(ctx, w, "n1", family, "nat")
	vip := spec.Must(w.Resolve(spec.ClusterIPOf("web", 80), family, "tcp"))
	nodePort := spec.Must(w.Resolve(spec.NodePortAt("n1", "web", 80), family, "tcp"))
	var errs []error
	for from, to := range portalChains {
		errs = append(errs, t.inOrder(from, []string{"-j " + to[0]}, []string{"-j " + to[1]}))
		for i, parts := range [][]string{
			{"-d " + prefix(vip.Addr()), "-p tcp", "--dport 80"},
			{"-p tcp", "--dport " + strconv.Itoa(int(nodePort.Port()))},
		} {
			r, err := t.find(to[i], parts...)
			if err == nil {
				err = leadsToListener(ctx, w, r, family)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// leadsToListener wants a rule to redirect to a port of n1 on which a process listens.
func leadsToListener(ctx context.Context, w spec.World, r rule, family lab.Family) error {
	fields := strings.Fields(string(r.Rule))
	target := fields[len(fields)-1]
	port := target
	switch r.Target() {
	case "REDIRECT":
	case "DNAT":
		to, err := netip.ParseAddrPort(target)
		if err != nil {
			return fmt.Errorf("the rule %q leads to no address and port", r.Rule)
		}
		route := spec.Must(w.Run(ctx, "n1", "ip", "route", "get", to.Addr().String()))
		if !strings.HasPrefix(route, "local ") {
			return fmt.Errorf("the rule %q does not lead to n1 itself, but there: %s", r.Rule, route)
		}
		port = strconv.Itoa(int(to.Port()))
	default:
		return fmt.Errorf("the rule %q redirects nothing", r.Rule)
	}
	if !listeners(ctx, w, family)[port] {
		return fmt.Errorf("nobody listens on port %s of n1, to which the rule %q leads", port, r.Rule)
	}
	return nil
}

// listeners returns the TCP ports of n1 that have a listener, in decimal.
func listeners(ctx context.Context, w spec.World, family lab.Family) map[string]bool {
	files := []string{"cat", "/proc/net/tcp6"} // which may serve IPv4 too
	if family == lab.V4 {
		files = append(files, "/proc/net/tcp")
	}
	text := spec.Must(w.Run(ctx, "n1", files...))
	const listen = "0A" // TCP_LISTEN, include/net/tcp_states.h
	found := map[string]bool{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[3] != listen {
			continue
		}
		_, hex, _ := strings.Cut(fields[1], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			panic(spec.HarnessErrorf("port of %q: %w", line, err))
		}
		found[strconv.FormatUint(port, 10)] = true
	}
	return found
}

// turns wants every three connections in a row to go to three endpoints. By chance that happens once in 1,800 times.
func turns(ctx context.Context, w spec.World, family lab.Family) error {
	for range 5 {
		round := map[string]bool{}
		for range 3 {
			round[pick(ctx, w, "c1", "web", family)] = true
		}
		if len(round) != 3 {
			return fmt.Errorf("three connections in a row went to %d of three endpoints: %v", len(round),
				slices.Sorted(maps.Keys(round)))
		}
	}
	return nil
}
