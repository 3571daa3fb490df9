// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab"
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
					{From: "backend", To: spec.HostAt("db", 8080), By: []string{"db"}},
					{From: "frontend", To: spec.HostAt("db", 8080), Want: spec.Silence},
					{From: "frontend", To: spec.HostAt("tunnel", 4789), Proto: "udp", Want: spec.Silence},
				},
				Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
					return errors.Join(workloadChains(ctx, w, f), membersAre(ctx, w, f, "backend"))
				}),
			},
			{
				Name: "another one comes", Do: []spec.Action{Apply(Pod("second", "n3", Labelled("allow-db-access", "true")))},
				Rows: []spec.Row{{From: "second", To: spec.HostAt("db", 8080), By: []string{"db"}}},
				Check: EachFamily(func(ctx context.Context, w spec.World, f lab.Family) error {
					return membersAre(ctx, w, f, "backend", "second")
				}),
			},
			{
				Name: "the first one goes", Do: []spec.Action{Delete("Pod", "backend")},
				Rows: []spec.Row{{From: "second", To: spec.HostAt("db", 8080), By: []string{"db"}}},
				Check: EachFamily(func(ctx context.Context, w spec.World,
					f lab.Family) error {
					return membersAre(ctx, w, f, "second")
				}),
			},
		},
	}}
}

// policyFrom is a NetworkPolicy as people write it.
func policyFrom(manifest string) store.Object {
	objects, err := store.Decode("policy", []byte("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"+manifest))
	if err != nil {
		panic(err) // a literal
	}
	return objects[0]
}

// filterOf is the filter table of n1, and the chains of the device that leads to the pod db.
func filterOf(ctx context.Context, w spec.World, f lab.Family) (t table, toPod, fromPod string, err error) {
	program := map[lab.Family]string{lab.V4: "iptables-nft-save", lab.V6: "ip6tables-nft-save"}[f]
	var text string
	var failed error
	if err := errors.Join(Soon(ctx, func(ctx context.Context) error {
		text, failed = w.Run(ctx, "n1", program, "-c", "-t", "filter")
		if failed != nil && strings.Contains(failed.Error(), "in kernel doesn't exist") {
			return failed // The set of another scenario's rule was deleted while the program read the rules.
		}
		return nil
	}), failed); err != nil {
		return nil, "", "", err
	}
	device := w.Lab().Node("n1").Ports()[spec.Must(w.Host("db")).Addr(f)]
	t, err = parseSave(text)
	return t, "cali-tw-" + device, "cali-fw-" + device, err
}

// workloadChains looks at what leads to the chains of db, and at their rules, in order.
func workloadChains(ctx context.Context, w spec.World, f lab.Family) error {
	t, to, from, err := filterOf(ctx, w, f)
	if err != nil {
		return err
	}
	device := strings.TrimPrefix(to, "cali-tw-")
	var errs []error
	for _, jump := range []struct {
		chain string
		parts []string
	}{
		{"FORWARD", []string{"-j cali-FORWARD"}}, {"cali-FORWARD", []string{"-j cali-from-wl-dispatch"}},
		{"cali-FORWARD", []string{"-j cali-to-wl-dispatch"}},
		{"cali-from-wl-dispatch", []string{"-i " + device, "-g " + from}},
		{"cali-to-wl-dispatch", []string{"-o " + device, "-g " + to}},
	} {
		_, err := t.find(jump.chain, jump.parts...)
		errs = append(errs, err)
	}
	if first := t["FORWARD"]; len(first) > 0 && first[0].Target() != "cali-FORWARD" {
		errs = append(errs, fmt.Errorf("FORWARD does not begin with cali-FORWARD:\n%s", t.text("FORWARD")))
	}
	tunnel := []string{"-p ipencap", "-j DROP"}
	if f == lab.V6 {
		tunnel[0] = "-p ipv6"
	}
	return errors.Join(append(errs,
		t.inOrder(to, [][]string{
			{"--ctstate RELATED,ESTABLISHED", "-j ACCEPT"}, {"--ctstate INVALID", "-j DROP"},
			{"-j MARK", "--set-xmark 0x0/0x10000"},
			{"-j MARK", "--set-xmark 0x0/0x20000"}, {"--mark 0x0/0x20000"}, {"--mark 0x10000/0x10000", "-j RETURN"},
			{"--mark 0x0/0x20000", "-j DROP"}, {"-j DROP"},
		}),
		t.inOrder(from, [][]string{
			{"--ctstate RELATED,ESTABLISHED", "-j ACCEPT"}, {"--ctstate INVALID", "-j DROP"},
			{"-p udp", "--dports 4789", "-j DROP"}, tunnel, {"-j DROP"},
		}),
	)...)
}

// inOrder finds rules of a chain one after another; the last one is to be the chain's last.
func (t table) inOrder(chain string, wanted [][]string) error {
	next := 0
	for i, r := range t[chain] {
		if last := next == len(wanted)-1; next < len(wanted) && r.has(wanted[next]...) && (!last || i == len(t[chain])-1) {
			next++
		}
	}
	if next < len(wanted) {
		return fmt.Errorf("%s has no rule with %q where one is to be; it has\n%s", chain, strings.Join(wanted[next], " "),
			t.text(chain))
	}
	return nil
}

// membersAre wants the set of the policy's one rule to have the addresses of pods, and nothing else.
func membersAre(ctx context.Context, w spec.World, f lab.Family, pods ...string) error {
	t, to, _, err := filterOf(ctx, w, f)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(t[to], func(r rule) bool { return strings.HasPrefix(r.Target(), "cali-pi-") })
	if at < 0 {
		return fmt.Errorf("%s leads to no policy:\n%s", to, t.text(to))
	}
	byPolicy := t[to][at].Target()
	accepts, err := t.find(byPolicy, "--set-xmark 0x10000/0x10000")
	if err != nil {
		return err
	}
	_, after, ok := strings.Cut(string(accepts.Rule), "--match-set ")
	name, side, _ := strings.Cut(after, " ")
	if !ok || !strings.HasPrefix(side, "src") {
		return fmt.Errorf("%s does not look its peers up in a set:\n%s", byPolicy, t.text(byPolicy))
	}
	text, err := Shown(ctx, w, "n1", "ipset", "save", name)
	if err != nil {
		return err
	}
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
