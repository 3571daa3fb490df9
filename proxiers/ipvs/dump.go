// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/internal/proxiers/dnat"
	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// Remarks implements kit.Remarker, with the sets.
func (f *family) Remarks() map[string]string {
	all := map[string]string{}
	for id := range kinds {
		all[setID(id).nameIn(f.kernel.family())] = kinds[id].about
	}
	maps.Copy(all, f.want.purposes())
	return all
}

// purposes returns the purposes of the chains of translated ports.
func (d *desired) purposes() map[string]string {
	about := map[string]string{}
	if d.State == nil {
		return about
	}
	for _, s := range d.State.Services {
		for _, p := range s.Ports {
			if translatesOutside(p) {
				dnat.Describe(about, p)
			}
		}
	}
	return about
}

// dump describes the kernel's state and which Services need each entry: virtual servers in the format of ipvsadm -Ln,
// the addresses on the device, the rule for local delivery, sets with entries, and the rules.
func (k *kernel) dump(ctx context.Context, want *desired) ([]byte, error) {
	seen := *k // reads the kernel into a copy, so that k stays as it is
	servers, device, sets, clients := *k.servers, *k.device, *k.sets, *k.clients
	seen.servers, seen.device, seen.sets, seen.clients = &servers, &device, &sets, &clients
	if err := seen.load(want); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := seen.dumpServers(&b, want); err != nil {
		return nil, err
	}
	fmt.Fprintf(&b, "\n# addresses on %s\n", deviceName)
	for _, a := range slices.SortedFunc(maps.Keys(device.have), netip.Addr.Compare) {
		line(&b, a.String(), want.bound.Claimants(a))
	}
	b.WriteString("\n# delivery of packets to external and load balancer IPs\n")
	intact, err := k.delivery.intact()
	if err != nil {
		return nil, err
	}
	if !intact {
		b.WriteString("missing: ")
	}
	fmt.Fprintln(&b, k.delivery)
	seen.dumpSets(&b, want)
	b.WriteByte('\n')
	remembered, err := k.clients.Dump()
	if err != nil {
		return nil, err
	}
	b.Write(remembered)
	text, err := k.programs.SaveText(ctx, xtables.Mangle, xtables.Filter, xtables.NAT)
	if err != nil {
		return nil, err
	}
	b.Write(xtables.Annotate(text, want.purposes(), nil))
	return b.Bytes(), nil
}

// String returns "TCP 10.96.0.10:53".
func (fr frontend) String() string {
	name := map[uint8]string{unix.IPPROTO_TCP: "TCP", unix.IPPROTO_UDP: "UDP", unix.IPPROTO_SCTP: "SCTP"}[fr.proto]
	return fmt.Sprintf("%s %s", name, fr.at)
}

// destinationLine is ipvsadm's format of a destination, except for the width of an address.
const destinationLine = "  -> %-44v %-7v %-6v %-10v %v\n"

func (k *kernel) dumpServers(b *bytes.Buffer, want *desired) error {
	b.WriteString("# virtual servers\n")
	b.WriteString("Prot LocalAddress:Port Scheduler Flags\n")
	fmt.Fprintf(b, destinationLine, "RemoteAddress:Port", "Forward", "Weight", "ActiveConn", "InActConn")
	for _, fr := range slices.SortedFunc(maps.Keys(k.servers.have), frontend.compare) {
		v := k.servers.have[fr]
		line(b, fr.String()+" "+v.scheduler, want.servers.Claimants(fr))
		backends, err := k.servers.backends(fr)
		if err != nil {
			return err
		}
		for _, to := range slices.SortedFunc(maps.Keys(backends), netip.AddrPort.Compare) {
			d := backends[to]
			fmt.Fprintf(b, destinationLine, to, "Masq", d.Weight, d.ActiveConnections, d.InactiveConnections)
		}
	}
	return nil
}

func (k *kernel) dumpSets(b *bytes.Buffer, want *desired) {
	var bySet [setCount][]member
	for m := range k.sets.have {
		bySet[m.set] = append(bySet[m.set], m)
	}
	for id, members := range bySet {
		if len(members) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n# set %s: %s\n", setID(id).nameIn(k.family()), kinds[id].about)
		slices.SortFunc(members, func(x, y member) int { return strings.Compare(x.entry.String(), y.entry.String()) })
		for _, m := range members {
			line(b, m.entry.String(), want.members.Claimants(m))
		}
	}
}

// line writes a line of the dump with the Services that need the thing.
func line(b *bytes.Buffer, thing string, by []string) {
	if len(by) == 0 {
		by = []string{"nobody"}
	}
	fmt.Fprintf(b, "%-60s # %s\n", thing, strings.Join(slices.Compact(by), ", "))
}

func (fr frontend) compare(o frontend) int {
	return cmp.Or(fr.at.Compare(o.at), cmp.Compare(fr.proto, o.proto))
}
