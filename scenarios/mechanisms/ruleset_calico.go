// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/manifest"
	"github.com/viplab/viplab/lab/cluster/store"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// calico returns the scenarios of the chains of an enforcer of network policies.
func calico() []spec.Scenario {
	return []spec.Scenario{{
		ID: "np-calico-workload-chain", Needs: []spec.Feature{spec.NetworkPolicy, spec.CalicoChains},
		Given: []store.Object{
			Pod("backend", "n1", Labelled("allow-db-access", "true")), Pod("frontend", "n1"), Pod("tunnel", "n2", UDP(4789)),
			Pod("db", "n1", App("db"), TCP(8080)), policyFrom(`
metadata: {name: allow-db-access}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress: [{from: [{podSelector: {matchLabels: {allow-db-access: "true"}}}]}]`),
		},
		Steps: []spec.Step{
			{
				Name: "one backend",
				Rows: []spec.Row{
					{From: "backend", To: spec.HostAt("db", 8080), Servers: []string{"db"}},
					{From: "frontend", To: spec.HostAt("db", 8080), Want: spec.Silence},
					{From: "frontend", To: spec.HostAt("tunnel", 4789), Proto: "udp", Want: spec.Silence},
				},
				Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
					return errors.Join(workloadChains(ctx, w, f), membersAre(ctx, w, f, "backend"))
				}),
			},
			{
				Name: "another one comes", Do: []spec.Action{Apply(Pod("second", "n3", Labelled("allow-db-access", "true")))},
				Rows: []spec.Row{{From: "second", To: spec.HostAt("db", 8080), Servers: []string{"db"}}},
				Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
					return membersAre(ctx, w, f, "backend", "second")
				}),
			},
			{
				Name: "the first one goes", Do: []spec.Action{Delete("Pod", "backend")},
				Rows: []spec.Row{{From: "second", To: spec.HostAt("db", 8080), Servers: []string{"db"}}},
				Check: EachFamily(func(ctx context.Context, w spec.World,
					f lab.Family) error {
					return membersAre(ctx, w, f, "second")
				}),
			},
		},
	}}
}

// policyFrom is a NetworkPolicy as people write it.
func policyFrom(text string) store.Object {
	objects, err := manifest.Decode("policy", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"+text))
	if err != nil {
		panic(err) // a literal
	}
	return objects[0]
}

// filterOf is the filter table of n1, and the chains of the device that leads to the pod db.
func filterOf(ctx context.Context, w spec.World, f lab.Family) (t table, toPod, fromPod string) {
	program := OfFamily(f, "iptables-nft-save", "ip6tables-nft-save")
	device := w.Lab().Node("n1").Ports()[spec.Must(w.Host("db")).Addr(f)]
	return parseSave(saved(ctx, w, "n1", program, "-c", "-t", "filter")), "cali-tw-" + device, "cali-fw-" + device
}

// workloadChains looks at what leads to the chains of db, and at their rules, in order.
func workloadChains(ctx context.Context, w spec.World, f lab.Family) error {
	t, to, from := filterOf(ctx, w, f)
	device := strings.TrimPrefix(to, "cali-tw-")
	errs := []error{t.want([][]string{
		{"FORWARD", "-j cali-FORWARD"}, {"cali-FORWARD", "-j cali-from-wl-dispatch"},
		{"cali-FORWARD", "-j cali-to-wl-dispatch"}, {"cali-from-wl-dispatch", "-i " + device, "-g " + from},
		{"cali-to-wl-dispatch", "-o " + device, "-g " + to},
	}...)}
	if first := t["FORWARD"]; len(first) > 0 && first[0].Target() != "cali-FORWARD" {
		errs = append(errs, fmt.Errorf("FORWARD does not begin with cali-FORWARD:\n%s", t.text("FORWARD")))
	}
	return errors.Join(append(errs,
		t.endsWith(to, [][]string{
			{"--ctstate RELATED,ESTABLISHED", "-j ACCEPT"}, {"--ctstate INVALID", "-j DROP"},
			{"-j MARK", "--set-xmark 0x0/0x10000"},
			{"-j MARK", "--set-xmark 0x0/0x20000"}, {"--mark 0x0/0x20000"}, {"--mark 0x10000/0x10000", "-j RETURN"},
			{"--mark 0x0/0x20000", "-j DROP"}, {"-j DROP"},
		}...),
		t.endsWith(from, [][]string{
			{"--ctstate RELATED,ESTABLISHED", "-j ACCEPT"}, {"--ctstate INVALID", "-j DROP"},
			{"-p udp", "--dports 4789", "-j DROP"}, {OfFamily(f, "-p ipencap", "-p ipv6"), "-j DROP"}, {"-j DROP"},
		}...),
	)...)
}

// membersAre wants the set of the policy's one rule to have the addresses of pods, and nothing else.
func membersAre(ctx context.Context, w spec.World, f lab.Family, pods ...string) error {
	t, to, _ := filterOf(ctx, w, f)
	at := slices.IndexFunc(t[to], func(r rule) bool { return strings.HasPrefix(r.Target(), "cali-pi-") })
	if at < 0 {
		return fmt.Errorf("%s leads to no policy:\n%s", to, t.text(to))
	}
	byPolicy := t[to][at].Target()
	accepts := spec.Try(t.find(byPolicy, "--set-xmark 0x10000/0x10000"))
	_, after, ok := strings.Cut(string(accepts.Rule), "--match-set ")
	name, side, _ := strings.Cut(after, " ")
	if !ok || !strings.HasPrefix(side, "src") {
		return fmt.Errorf("%s does not look its peers up in a set:\n%s", byPolicy, t.text(byPolicy))
	}
	text := OutputOf(ctx, w, "n1", "ipset", "save", name)
	var got, want []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); words[0] == "add" {
			got = append(got, strings.TrimSuffix(strings.TrimSuffix(words[2], "/32"), "/128"))
		}
	}
	for _, p := range pods {
		want = append(want, spec.Must(w.Host(p)).Addr(f).String())
	}
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		return fmt.Errorf("the set %s has %v, not %v", name, got, want)
	}
	return nil
}
