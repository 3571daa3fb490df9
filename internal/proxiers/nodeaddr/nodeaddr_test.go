// SPDX-License-Identifier: Apache-2.0

package nodeaddr

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/suite/spec"
)

func TestNodePorts(t *testing.T) {
	local4 := addrs("10.244.1.1", "127.0.0.1", "192.168.7.11", "192.168.7.111")
	local6 := addrs("::1", "fd00:7::11")
	none := []netip.Addr{}
	for _, c := range []struct {
		name      string
		ranges    []string
		noLocal   bool
		want4     []netip.Addr
		want6     []netip.Addr
		localhost bool
	}{
		{"everywhere", nil, false, nil, nil, true},
		{"everywhere but localhost", nil, true, nil, nil, false},
		{"one range", []string{"192.168.7.0/24"}, false, addrs("192.168.7.11", "192.168.7.111"), none, false},
		{"other family only", []string{"fd00:7::/64"}, false, none, addrs("fd00:7::11"), false},
		{"zero range", []string{"10.0.0.0/8", "0.0.0.0/0"}, false, nil, none, true},
		{"zero ranges of both families", []string{"0.0.0.0/0", "::/0"}, false, nil, nil, true},
		{"loopback", []string{"127.0.0.0/8"}, false, addrs("127.0.0.1"), none, true},
		{"loopback, but not localhost", []string{"127.0.0.0/8", "10.244.1.1/32"}, true, addrs("10.244.1.1"), none, false},
		{"v6 loopback never", []string{"::1/128"}, false, none, none, false},
		{"nothing matches", []string{"172.16.0.0/12"}, false, none, none, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := spec.ProxyConfig{NoLocalhostNodePorts: c.noLocal}
			for _, r := range c.ranges {
				config.NodePortAddresses = append(config.NodePortAddresses, netip.MustParsePrefix(r))
			}
			check(t, "IPv4", NodePorts(config, lab.V4, local4), c.want4)
			check(t, "IPv6", NodePorts(config, lab.V6, local6), c.want6)
			if got := ServesLocalhost(config); got != c.localhost {
				t.Errorf("serves localhost: got %v, want %v", got, c.localhost)
			}
		})
	}
}

func check(t *testing.T, what string, got, want []netip.Addr) {
	t.Helper()
	if !slices.Equal(got, want) || (got == nil) != (want == nil) {
		t.Errorf("%s: got %v, want %v (nil: %v, %v)", what, got, want, got == nil, want == nil)
	}
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}
