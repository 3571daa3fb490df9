// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// nodes are the scenarios of nodes and of pods that use their network.
func nodes() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-own-node", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(), egress())),
			Steps: []spec.Step{step("", nil, open("a1", "n1"), shut("a1", "n2", "n3"))},
		},
		{
			ID: "np-own-node-any-user", Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress(), egress())),
			Steps: []spec.Step{{Rows: append(open("a1", "n1"), shut("a1", "n2")...),
				Check: func(ctx context.Context, w spec.World) error {
					if sandbox.Rootless() {
						w.Note("not tried: a program of another user, as the sandbox of an ordinary user has root alone")
						return nil
					}
					return EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
						return errors.Join(asNobody(ctx, w, "n1", "a1", f, "tcp"), asNobody(ctx, w, "n1", "a1", f, "udp"))
					})(ctx, w)
				}}},
		},
		{
			ID: "np-host-network-pod", Needs: enforced,
			Given: four(
				Pod("h2", "n2", HostNetwork(), App("host")),
				policy("deny", labels(), ingress(), egress()), policy("p", pod("a1"), ingress(allow(pods(labels("app", "host"))))),
			),
			Steps: []spec.Step{step("", do(Serve("n2", "tcp", 9477)), shut("a1", "n2", "b2"), []spec.Row{
				{From: "n1", To: spec.HostAt("n2", 9477), Servers: []string{"n2"}},
				{From: "n3", To: spec.HostAt("n2", 9477), Servers: []string{"n2"}},
				{From: "client", To: spec.HostAt("n2", 9477), Servers: []string{"n2"}},
			})},
		},
	}
}

// nodePeers returns the scenarios of what a policy makes of nodes as peers.
func nodePeers() []spec.Scenario {
	return []spec.Scenario{
		{
			ID: "np-egress-to-node", Needs: enforced,
			Given: four(policy("p", pod("a1"), egress())),
			Steps: []spec.Step{step("", do(Serve("n3", "tcp", 9478)), []spec.Row{
				{From: "a1", To: spec.HostAt("n3", 9478), Want: denied},
				{From: "b1", To: spec.HostAt("n3", 9478), Servers: []string{"n3"}},
			})},
		},
		{
			ID: "np-egress-to-own-node", Needs: enforced,
			Given: four(policy("p", pod("a1"), egress())),
			Steps: []spec.Step{step("", do(Serve("n1", "tcp", 9479)), shut("b1", "a1"), []spec.Row{
				{From: "a1", To: spec.HostAt("n1", 9479), Want: spec.Reply | denied, Servers: []string{"n1"},
					Choice: "a pod that may send nothing, to its own node"},
				{From: "b1", To: spec.HostAt("n1", 9479), Servers: []string{"n1"}},
			})},
		},
		{
			ID: "np-node-is-no-pod", Needs: enforced,
			Given: four(policy("pods", labels(), ingress(allow(podsIn(labels(), labels()))))),
			Steps: []spec.Step{
				step("pods alone", nil, open("a1", "b2", "n1"), shut("a1", "n2", "n3")),
				step("and the addresses of n2", do(applyFrom("node", pod("a1"), "n2")), open("a1", "b2", "n1", "n2"),
					shut("a1", "n3"), shut("b1", "n2")),
			},
		},
		{
			ID: "np-host-port", NodePorts: []uint16{30060, 30061}, Cluster: &spec.ClusterConfig{}, Needs: enforced,
			Given: four(policy("p", pod("a1"), ingress())),
			Steps: []spec.Step{
				{Name: "nobody is allowed", Do: do(Portmap("n1"), MapPort(spec.HostAt("n1", 30060), "tcp", "a1"),
					MapPort(spec.HostAt("n1", 30061), "tcp", "b1")), Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30060), Want: denied},
					{From: "b2", To: spec.HostAt("n1", 30060), Want: denied},
					{From: "client", To: spec.HostAt("n1", 30061), Servers: []string{"b1"}},
				}},
				{Name: "the client is allowed", Do: do(applyFrom("outside", pod("a1"), "client")), Rows: []spec.Row{
					{From: "client", To: spec.HostAt("n1", 30060), Servers: []string{"a1"}},
					{From: "router", To: spec.HostAt("n1", 30060), Want: denied},
				}},
			},
		},
	}
}

// asNobody asks a pod from a host, as the user 65534, who is not root.
func asNobody(ctx context.Context, w spec.World, host, pod string, f lab.Family, proto string) error {
	to := spec.Must(w.Resolve(spec.HostAt(pod, 8080), f, proto))
	server := spec.Must(w.Server(pod))
	ask := fmt.Sprintf("exec 3<>/dev/%s/%s/%d && echo hello >&3 && head -n 1 <&3", proto, to.Addr(), to.Port())
	script := fmt.Sprintf("timeout %.0f bash -c '%s' 2>&1 || echo nobody", Patience().Seconds(), ask)
	text := spec.Must(w.Run(ctx, host, "setpriv", "--reuid=65534", "bash", "-c", script))
	var answer traffic.Greeting
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Server != server.Name() {
		return fmt.Errorf("a program of user 65534 on %s, to %s/%s: answered by %s, want %s", host, to, proto,
			strings.TrimSpace(text), server.Name())
	}
	return nil
}
