// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

func TestSysctls(t *testing.T) {
	keys := []string{
		"net.ipv4.vs.conntrack", "net.ipv4.vs.expire_nodest_conn", "net.ipv4.conf.all.arp_ignore",
		"net.ipv4.conf.all.arp_announce",
	}
	for _, c := range []struct {
		config spec.ProxyConfig
		want   string
	}{
		{spec.ProxyConfig{}, "1 1 0 0"},
		{spec.ProxyConfig{IPVSStrictARP: true}, "1 1 1 2"},
	} {
		node := proxiertest.UpNode(t, lab.V4, lab.V6)
		node.Config = c.config
		read := func() string {
			var values []string
			for _, key := range keys {
				value, err := node.Host.Sysctl(key)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
			return strings.Join(values, " ")
		}
		in := start(t, node)
		if got := read(); got != c.want {
			t.Errorf("%+v, started: got %s, want %s", c.config, got, c.want)
		}
		proxiertest.Stop(t, in)
		if got := read(); got != "0 0 0 0" {
			t.Errorf("%+v, stopped: got %s, want what it was, 0 0 0 0", c.config, got)
		}
	}
}

// TestLateAddress: an address that the node gets while the proxier runs serves NodePorts; those of Services never do.
func TestLateAddress(t *testing.T) {
	node := proxiertest.UpNode(t, lab.V4)
	in := start(t, node)
	s := proxiertest.Cluster(1, 1)
	s.Services[0].Spec.Type, s.Services[0].Spec.Ports[0].NodePort = "NodePort", 30080
	proxiertest.Apply(t, in, s)
	for _, step := range []struct{ change, want string }{
		{"+192.168.7.11/32", "TCP 192.168.7.11:30080"},
		{"+192.168.8.11/32", "TCP 192.168.7.11:30080 TCP 192.168.8.11:30080"},
		{"-192.168.7.11/32", "TCP 192.168.8.11:30080"},
	} {
		proxiertest.Readdress(t, node, step.change)
		proxiertest.Apply(t, in, s)
		var got []string
		for _, fr := range slices.SortedFunc(maps.Keys(in.families[0].kernel.servers.have), frontend.compare) {
			if fr.at.Port() == 30080 {
				got = append(got, fr.String())
			}
		}
		if text := strings.Join(got, " "); text != step.want {
			t.Errorf("after a change of %s: NodePorts answer on %q, want %q", step.change, text, step.want)
		}
	}
}
