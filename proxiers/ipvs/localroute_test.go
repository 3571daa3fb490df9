// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/lab"
)

// TestLocalRoutes: the route by lo to a ClusterIP precedes the kernel's, and those that no Service needs are removed.
func TestLocalRoutes(t *testing.T) {
	vip := vipTCP.at.Addr()
	node := proxiertest.UpNode(t, lab.V4)
	first := start(t, node)
	proxiertest.Apply(t, first, servedBy(backendA))
	filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Dst: address(vip).IPNet}
	const fields = netlink.RT_FILTER_TABLE | netlink.RT_FILTER_DST
	found, err := node.Host.Netlink().RouteListFiltered(unix.AF_INET, filter, fields)
	if err != nil {
		t.Fatal(err)
	}
	d := first.families[0].kernel.device
	var devices []int
	for _, r := range found {
		devices = append(devices, r.LinkIndex)
	}
	if want := []int{1, d.link.Attrs().Index}; !slices.Equal(devices, want) {
		t.Errorf("routes to %s by the devices %v, want %v", vip, devices, want)
	}

	stray := netip.MustParseAddr("10.96.0.99")
	if err := d.addRoute(stray); err != nil {
		t.Fatal(err)
	}
	if err := d.removeRoute(vip); err != nil {
		t.Fatal(err)
	}
	second := start(t, node)
	proxiertest.Apply(t, second, servedBy(backendA))
	if left, err := d.routes(); err != nil || !maps.Equal(left, map[netip.Addr]bool{vip: true}) {
		t.Errorf("after a restart: routes to %v (%v), want %s alone", left, err, vip)
	}
	proxiertest.Stop(t, second)
	if left, err := d.routes(); err != nil || len(left) > 0 {
		t.Errorf("after Stop: routes to %v (%v)", left, err)
	}
}
