// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/proxiers/model"
)

// TestRestart: a proxier that finds what a former one has left takes over, removes what is out of date, and leaves
// alone what others have made, as does Stop.
func TestRestart(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4, lab.V6)
	first := start(t, node)
	nothing := contents(t, first)
	makeForeign(t, first)
	theirs := contents(t, first)
	proxiertest.Apply(t, first, proxiertest.Cluster(20, 2))
	// Backends that were draining when the former instance ended. One of them is wanted again.
	servers := first.families[0].kernel.servers
	for _, weightless := range []string{"10.244.0.1:8080", "10.244.0.40:8080"} {
		for fr, v := range servers.have {
			if _, there := v.weights[netip.MustParseAddrPort(weightless)]; there {
				if err := servers.handle.UpdateDestination(servers.service(fr),
					destination(netip.MustParseAddrPort(weightless), 0)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}

	second := start(t, node)
	proxiertest.Apply(t, second, proxiertest.Cluster(3, 2))
	fresh := start(t, proxiertest.UpNode(t, lab.V4, lab.V6))
	makeForeign(t, fresh)
	proxiertest.Apply(t, fresh, proxiertest.Cluster(3, 2))
	expectLines(t, "after a restart", contents(t, second), contents(t, fresh))
	third := start(t, node) // it stops without ever having applied anything
	for _, in := range []*instance{third, fresh} {
		spy := spyOn(t, in)
		proxiertest.Stop(t, in)
		expectLines(t, "after Stop", spy(), theirs)
	}
	if len(nothing) == 0 || slices.Equal(nothing, theirs) {
		t.Errorf("what others made does not show: %v", theirs)
	}
}

// makeForeign creates a virtual server, a set and a rule of another program.
func makeForeign(t *testing.T, in *instance) {
	t.Helper()
	k := in.families[0].kernel
	theirs := frontend{netip.MustParseAddrPort("192.0.2.200:80"), unix.IPPROTO_TCP}
	set := ipset.Set{Name: "THEIRS", Type: ipset.IP, Family: lab.V4}
	tx := &xtables.Transaction{Table: xtables.Mangle}
	tx.Insert("OUTPUT", xtables.NewRule(xtables.Comment("theirs"), xtables.InSet(set.Name, "dst"), xtables.Accept))
	for _, err := range []error{
		k.servers.handle.NewService(k.servers.service(theirs)),
		k.servers.handle.NewDestination(k.servers.service(theirs),
			destination(netip.MustParseAddrPort("192.0.2.1:80"), 0)),
		k.sets.conn.Create(set),
		k.programs.Restore(t.Context(), tx),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestHealing: the next change restores everything that another program has deleted.
func TestHealing(t *testing.T) {
	in := start(t, proxiertest.UpNode(t, lab.V4))
	s := proxiertest.Cluster(3, 2)
	proxiertest.Apply(t, in, s)
	k := in.families[0].kernel
	if err := k.servers.handle.Flush(); err != nil {
		t.Fatal(err)
	}
	less := *s
	less.EndpointSlices = slices.Clone(s.EndpointSlices)
	_, less.EndpointSlices[0] = proxiertest.Simple(0, 1, lab.V4)
	proxiertest.Apply(t, in, &less)
	fresh := start(t, proxiertest.UpNode(t, lab.V4))
	proxiertest.Apply(t, fresh, &less)
	expectLines(t, "healed", contents(t, in), contents(t, fresh))
}

// TestFlushedRules: after another program has flushed the firewall or the routes, or deleted the device, the next
// change restores them.
func TestFlushedRules(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	in := start(t, node)
	// The first Service is served by rules, the others by IPVS.
	cluster := func(n int) *store.Snapshot {
		s := proxiertest.Cluster(n, 2)
		s.Services[0].Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		return s
	}
	proxiertest.Apply(t, in, cluster(3))
	id := model.PortID{Namespace: "test", Name: "svc-00000", Port: "http", Protocol: corev1.ProtocolTCP}
	for _, command := range []string{"nft flush ruleset", "nft flush chain ip nat KUBE-POSTROUTING",
		"nft flush chain ip nat " + chainTranslations, "nft flush chain ip nat " + dnat.NamesOf(id).Cluster,
		"nft flush chain ip filter INPUT", "ip rule delete priority 400", "ip route flush table 7430",
		"ip link delete " + deviceName} {
		words := strings.Fields(command)
		if err := node.Host.NS.Run(exec.CommandContext(t.Context(), words[0], words[1:]...)); err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			proxiertest.Apply(t, in, cluster(4+n))
		}
		fresh := start(t, proxiertest.UpNode(t, lab.V4))
		proxiertest.Apply(t, fresh, cluster(5))
		expectLines(t, "after "+command, contents(t, in), contents(t, fresh))
	}
}
