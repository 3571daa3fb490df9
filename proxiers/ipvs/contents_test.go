// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/moby/ipvs"

	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/internal/proxiers/proxiertest"
	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/lab"
)

// contents are all virtual servers, addresses, sets and rules of an instance's node, also those of other programs.
func contents(t proxiertest.Failer, in *instance) []string {
	var out []string
	for _, f := range in.families {
		out = append(out, look(t, f.kernel)...)
	}
	return out
}

// spyOn makes contents work after the instance has stopped.
func spyOn(t *testing.T, in *instance) func() []string {
	var all []*kernel
	for _, f := range in.families {
		k, err := open(in.node.Host.NS, f.kernel.rules, "rr", t.TempDir(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.close() })
		all = append(all, k)
	}
	return func() []string {
		var out []string
		for _, k := range all {
			out = append(out, look(t, k)...)
		}
		return out
	}
}

func look(t proxiertest.Failer, k *kernel) []string {
	out := []string{k.family().String()}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	services, err := k.servers.handle.GetServices()
	must(err)
	for _, v := range services {
		if v.AddressFamily != uint16(nodeaddr.Domain(k.family())) {
			continue
		}
		destinations, err := k.servers.handle.GetDestinations(v)
		must(err)
		out = append(out, describeService(v, destinations))
	}
	clients, err := k.sets.conn.Timeouts(map[lab.Family]string{lab.V4: "KUBE-SEP-", lab.V6: "KUBE-6-SEP-"}[k.family()])
	must(err)
	for name, timeout := range clients {
		out = append(out, fmt.Sprintf("%s %v", name, timeout))
	}
	for id := range setCount {
		entries, err := k.sets.conn.Entries(id.in(k.family()))
		must(err)
		for _, e := range entries {
			out = append(out, id.nameIn(k.family())+" "+e.String())
		}
	}
	if link, err := k.device.ns.Netlink().LinkByName(deviceName); err == nil {
		d := &device{ns: k.device.ns, family: k.family(), link: link}
		must(d.list())
		for a := range d.have {
			out = append(out, deviceName+" "+a.String())
		}
		routes, err := d.routes()
		must(err)
		for a := range routes {
			out = append(out, "local route to "+a.String())
		}
	}
	intact, err := k.delivery.intact()
	must(err)
	if intact {
		out = append(out, k.delivery.String())
	}
	saved, err := k.programs.Save(t.Context())
	must(err)
	for _, table := range []xtables.TableName{xtables.Mangle, xtables.Filter, xtables.NAT} {
		for name, rules := range saved.Of(table).Chains {
			for i, r := range rules {
				if name == chainTranslations {
					i = 0 // the order depends on the changes, and does not matter
				}
				out = append(out, fmt.Sprintf("%s %s %d %s", table, name, i, r))
			}
		}
	}
	slices.Sort(out)
	return out
}

func describeService(v *ipvs.Service, all []*ipvs.Destination) string {
	var to []string
	for _, d := range all {
		to = append(to, fmt.Sprintf("%s:%d weight %d", d.Address, d.Port, d.Weight))
	}
	slices.Sort(to)
	return fmt.Sprintf("%d %s:%d %s %#x %d -> %s", v.Protocol, v.Address, v.Port, v.SchedName, v.Flags&flagsOfOurs,
		v.Timeout, strings.Join(to, ", "))
}
