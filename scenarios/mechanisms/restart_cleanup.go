// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/machine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/traffic"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

func cleanup() spec.Scenario {
	return spec.Scenario{
		ID: "rr-cleanup", Cluster: &spec.ClusterConfig{Nodes: []string{"n1", "n2"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort, spec.Cleanup},
		Given: world(),
		Steps: []spec.Step{
			{Name: "before", Rows: fresh},
			{Name: "after the clean-up of n1", Check: func(ctx context.Context, w spec.World) error {
				spec.TryDo(w.ProxierControl("n1").Cleanup(ctx))
				spec.TryDo(w.Expect(ctx,
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
					spec.Row{From: "n1", To: spec.ClusterIPOf("web", 80), Want: spec.NotServed},
					spec.Row{From: "client", To: spec.NodePortAt("n1", "web", 80), Want: spec.NotServed},
					spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Proto: "udp", Want: spec.NotServed},
					spec.Row{From: "client", To: spec.NodePortAt("n2", "web", 80), Servers: backends},
					spec.Row{From: "c1", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}},
					spec.Row{From: "n1", To: spec.HostAt("a2", 8080), Servers: []string{"a2"}},
					spec.Row{From: "n1", To: spec.HostAt("b1", 8080), Servers: []string{"b1"}},
				))
				return nothingLeft(ctx, w, "n1")
			}},
		},
	}
}

// holdings list what a program can leave on a node. Of a line, the field of this number counts, or all of it.
var holdings = []struct {
	what, list string
	field      int
}{
	{"nftables", "nft list tables", -1},
	{"iptables-nft", "iptables-nft-save", -1}, {"ip6tables-nft", "ip6tables-nft-save", -1},
	{"iptables-legacy", "iptables-legacy-save", -1}, {"ip6tables-legacy", "ip6tables-legacy-save", -1},
	{"set", "ipset list -n", 0}, {"virtual server", "ipvsadm -S -n", -1},
	{"device", "ip -br link", 0}, {"address on", "ip -o addr show scope global", 1},
}

// ordinary are lines of what is no trace of a proxier: the built-in chains of iptables and their tables, devices of
// pods, and what a kubelet makes as well as kube-proxy.
var ordinary = regexp.MustCompile(`^nftables table ip6? (filter|nat|mangle|raw|security)$` +
	`|^ip6?tables-[a-z]+ ([#*]|COMMIT|:[A-Z]+ ACCEPT )` + `|^device (veth|` + lab.RoutedPrefix + `)` +
	`|KUBE-(FIREWALL|KUBELET-CANARY|MARK-DROP|IPTABLES-HINT)\b`)

// held returns what a node holds. A program that lists it, or a part of the kernel, may be missing.
func held(ctx context.Context, w spec.World, node string) (all []string) {
	for _, h := range holdings {
		text, _ := w.Run(ctx, node, strings.Fields(h.list)...)
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if fields := strings.Fields(line); h.field >= 0 && h.field < len(fields) {
				line, _, _ = strings.Cut(fields[h.field], "@")
			}
			if line = h.what + " " + line; !ordinary.MatchString(line) {
				all = append(all, line)
			}
		}
	}
	return all
}

// nothingLeft wants a node to hold nothing that n3 does not hold, which has never had a proxier.
func nothingLeft(ctx context.Context, w spec.World, node string) error {
	if w.Features()[spec.NetworkPolicy] {
		w.Note("not looked at: what the kernel holds, as the enforcer of network policies is on the same nodes")
		return nil
	}
	left := held(ctx, w, node)
	for _, line := range held(ctx, w, "n3") {
		if i := slices.Index(left, line); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	slices.Sort(left)
	if left = slices.Compact(left); len(left) > 0 {
		return fmt.Errorf("%s still holds, and n3 does not, which has never had a proxier:\n%s", node,
			strings.Join(left, "\n"))
	}
	return nil
}

// healingLimit is how long a proxier that heals by itself may take: the sync period of kube-proxy, 30 s, and what a
// sync takes.
const healingLimit = 45 * time.Second

func deletedExternally() spec.Scenario {
	return spec.Scenario{
		ID: "rr-rules-deleted-externally", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: world(),
		Steps: []spec.Step{
			{Name: "before", Rows: fresh},
			{Name: "somebody flushes the firewall of n1", Check: func(ctx context.Context, w spec.World) error {
				flushFirewall(ctx, w, "n1")
				if !w.Features()[spec.SelfHealing] {
					w.Note("not tried: Services before a change of the cluster, as self-healing is not declared")
					return nil
				}
				return healed(ctx, w)
			}},
			{Name: "a Service comes", Do: []spec.Action{Apply(Service("new", Selecting("web")))}, Rows: append([]spec.Row{
				{From: "c1", To: spec.ClusterIPOf("new", 80), Servers: backends},
				// What comes from elsewhere to a pod elsewhere has to be masqueraded, which the first one drawn may not show.
				{From: "n1", To: spec.ClusterIPOf("web", 80), Servers: backends, Times: 20},
				{From: "client", To: spec.NodePortAt("n1", "web", 80), Servers: backends, Times: 20},
			}, fresh...)},
		},
	}
}

// tableDeleted deletes a part of what a proxier has programmed, and then another one. Next comes a Service with
// endpoints, and one without, which a proxier may keep in another part.
func tableDeleted() spec.Scenario {
	rows := append([]spec.Row{{From: "c1", To: spec.ClusterIPOf("empty", 80), Want: spec.Refused}}, fresh...)
	step := func(name, service string, do spec.Action) spec.Step {
		return spec.Step{
			Name: name,
			Do: []spec.Action{
				do, Apply(Service(service, Selecting("web")), Service(service+"-empty", Selecting("nobody"))),
			},
			Rows: append(rows[:len(rows):len(rows)], spec.Row{From: "c1", To: spec.ClusterIPOf(service, 80), Servers: backends}),
		}
	}
	return spec.Scenario{
		ID: "rr-table-deleted-externally", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP, spec.NodePort},
		Given: world(Service("empty", Selecting("nobody"))),
		Steps: []spec.Step{
			{Name: "before", Rows: rows},
			step("nat goes", "first", deleteOnN1("nat", "ip kube-proxy", "ip addr flush dev kube-ipvs0")),
			step("filter goes", "second", deleteOnN1("filter", "ip6 kube-proxy", "ipvsadm -C")),
		},
	}
}

// deleteOnN1 deletes a table of iptables in both families, or else a table of nftables, or runs a command where the
// proxier uses IPVS.
func deleteOnN1(xtable, nftable, ipvs string) spec.Action {
	return spec.Action{Name: "delete " + xtable, Run: func(ctx context.Context, w spec.World) error {
		switch {
		case w.Features()[spec.IPVS]:
			spec.Must(w.Run(ctx, "n1", strings.Fields(ipvs)...))
		case w.Features()[spec.IPTablesLegacy]:
			RunActions(ctx, w, Firewall("flush", "n1", "-t "+xtable+" -F", "-t "+xtable+" -X"))
		default:
			deleteTables(ctx, w, "n1", func(table string) bool {
				return table == nftable || table == "ip "+xtable || table == "ip6 "+xtable
			})
		}
		return nil
	}}
}

// deleteTables deletes the nftables tables of a node that which accepts, such as "ip nat".
func deleteTables(ctx context.Context, w spec.World, node string, which func(table string) bool) {
	var script strings.Builder
	for line := range strings.Lines(spec.Must(w.Run(ctx, node, "nft", "list", "tables"))) {
		if which(strings.TrimSpace(strings.TrimPrefix(line, "table "))) {
			script.WriteString("delete " + line)
		}
	}
	if script.Len() > 0 {
		spec.Must(w.Run(ctx, node, "nft", script.String()))
	}
}

// flushFirewall deletes every table of a node but the lab's own, as the restart of a firewall daemon does.
func flushFirewall(ctx context.Context, w spec.World, node string) {
	deleteTables(ctx, w, node, func(table string) bool { return !strings.HasSuffix(table, " viplab") })
	if w.Features()[spec.IPTablesLegacy] {
		RunActions(ctx, w, Firewall("flush", node, "-t filter -F", "-t filter -X", "-t nat -F", "-t nat -X", "-t mangle -F",
			"-t mangle -X"))
	}
}

// healed returns when new connections work in every family without any change of the cluster.
func healed(ctx context.Context, w spec.World) error {
	return Within(ctx, machine.Limit(healingLimit), func(ctx context.Context) error {
		for _, row := range fresh {
			for _, f := range w.Lab().Stack().Families() {
				conn, answer, err := w.Probe(ctx, row.From, row.To, f, row.Protocol())
				spec.TryDo(err)
				if answer.Outcome != traffic.Reply {
					return fmt.Errorf("%s -> %s %s: %s", row.From, row.To, f, answer)
				}
				spec.MustDo(conn.Close())
			}
		}
		return nil
	})
}

func foreignRules() spec.Scenario {
	return spec.Scenario{
		ID: "rr-foreign-rules-kept", Cluster: &spec.ClusterConfig{Nodes: []string{"n1"}},
		Needs: []spec.Feature{spec.ClusterIP},
		Given: world(),
		Steps: []spec.Step{{Check: func(ctx context.Context, w spec.World) error {
			makeForeign(ctx, w)
			before := foreign(ctx, w)
			same := func(after string) error {
				if now := foreign(ctx, w); now != before {
					return fmt.Errorf("after %s, what others have made on n1 is\n%s\nIt was\n%s", after, now, before)
				}
				return nil
			}
			serves := spec.Row{From: "c1", To: spec.ClusterIPOf("web", 80), Servers: backends}
			spec.TryDo(w.Apply(Service("another", Selecting("web"))))
			spec.TryDo(w.Expect(ctx, serves))
			spec.TryDo(same("a sync"))
			spec.TryDo(w.ProxierControl("n1").Start(ctx))
			spec.TryDo(w.Expect(ctx, serves))
			spec.TryDo(same("a restart"))
			if !w.Features()[spec.Cleanup] {
				w.Note("not tried: the clean-up, as it is not declared")
				return nil
			}
			spec.TryDo(w.ProxierControl("n1").Cleanup(ctx))
			return same("the clean-up")
		}}},
	}
}

// foreignTable is a table with one of each kind of object. Its rules match the discard port alone.
const foreignTable = `table inet foreign {
	counter seen { packets 17 bytes 1700; }
	quota most { over 1 mbytes used 17 kbytes; }
	set nics { type ifname; elements = { "lo", "foreign0" }; }
	map services { type inet_service : verdict; elements = { 9 : drop }; }
	map marks { type ipv4_addr : mark; flags interval; elements = { 192.0.2.0/24 : 0x7 }; }
	chain forward {
		type filter hook forward priority 5;
		iifname @nics tcp dport 9 counter name seen
		tcp dport 9 meta mark set ip saddr map @marks
		tcp dport vmap @services
	}
}`

// makeForeign makes on n1 what an administrator or another program might have there, none of which stops any packet of
// the scenario: chains that built-in chains lead to, a table of nftables, an IP set in use.
func makeForeign(ctx context.Context, w spec.World) {
	const discard = "9" // RFC 863; unused in the lab
	commands := [][]string{{"nft", foreignTable}}
	// The kernel may lack flow tables.
	_, _ = w.Run(ctx, "n1", "nft", "add table inet foreign; "+
		"add flowtable inet foreign fast { hook ingress priority 0; devices = { lo }; }")
	for _, f := range w.Lab().Stack().Families() {
		set, kind := OfFamily(f, "foreign4", "foreign6"), OfFamily(f, "inet", "inet6")
		commands = append(commands, []string{"ipset", "create", set, "hash:ip", "family", kind})
		for _, at := range []struct{ table, chain string }{{"filter", "FORWARD"}, {"nat", "PREROUTING"},
			{"nat", "POSTROUTING"}} {
			own := "FOREIGN-" + at.chain
			for _, words := range []string{
				"-N " + own,
				"-A " + own + " -p tcp --dport " + discard + " -m set --match-set " + set + " src -c 17 1700 -j RETURN",
				"-I " + at.chain + " -j " + own,
			} {
				commands = append(commands, append([]string{IPTables(w, f), "-w", "-t", at.table}, strings.Fields(words)...))
			}
		}
	}
	for _, argv := range commands {
		spec.Must(w.Run(ctx, "n1", argv...))
	}
}

// foreign is what is there of that now.
func foreign(ctx context.Context, w spec.World) string {
	commands := [][]string{{"nft", "list", "table", "inet", "foreign"}, {"ipset", "list", "-n"}}
	for _, f := range w.Lab().Stack().Families() {
		for _, table := range []string{"filter", "nat"} {
			commands = append(commands, []string{IPTables(w, f), "-w", "-t", table, "-S"})
		}
		commands = append(commands, []string{IPTables(w, f), "-w", "-v", "-S", "FOREIGN-FORWARD"}) // with its counters
	}
	var all strings.Builder
	for _, argv := range commands {
		text := OutputOf(ctx, w, "n1", argv...)
		for line := range strings.Lines(text) {
			if strings.Contains(line, "FOREIGN-") || strings.HasPrefix(line, "foreign") || argv[0] == "nft" {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}
