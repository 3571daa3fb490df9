// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/keeper"
	"github.com/viplab/viplab/internal/proxiers/nodeaddr"
	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/suite/spec"
)

// schedulers are those of the kernel that pick by what Services are made of: round robin, least connection, source and
// destination hashing, shortest expected delay, never queue, maglev hashing.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "sh", "dh", "sed", "nq", "mh"}

// settings are what IPVS needs to do the work of a Service proxier. The kernel has one of each for both families.
func settings(c spec.ProxyConfig) []netns.Setting {
	all := append(conntrack.Timeouts(),
		// Connections are entered into connection tracking: without it there is no masquerading, and no "ESTABLISHED".
		netns.Setting{Key: "net.ipv4.vs.conntrack", Value: "1"},
		// A client that uses a port again while the last connection from it is in TIME_WAIT begins a new one. Before Linux
		// 5.9 that took a second each time, and 0 was better.
		netns.Setting{Key: "net.ipv4.vs.conn_reuse_mode", Value: "1"},
		// Packets for a backend that is gone are not swallowed until the connection expires.
		netns.Setting{Key: "net.ipv4.vs.expire_nodest_conn", Value: "1"},
		// Session affinity to a backend that takes no new connections ends.
		netns.Setting{Key: "net.ipv4.vs.expire_quiescent_template", Value: "1"},
	)
	if c.IPVSStrictARP {
		all = append(all,
			// ARP is answered on the device alone that has the address: never for those on kube-ipvs0.
			netns.Setting{Key: "net.ipv4.conf.all.arp_ignore", Value: "1"},
			// Nor are they told to others as the sender's address.
			netns.Setting{Key: "net.ipv4.conf.all.arp_announce", Value: "2"},
		)
	}
	return all
}

// instance is the proxier on one node.
type instance struct {
	*keeper.Keeper
	node     spec.Node
	families []*family
}

func newInstance(ctx context.Context, node spec.Node) (*instance, error) {
	scheduler := cmp.Or(node.Config.IPVSScheduler, schedulers[0])
	if !slices.Contains(schedulers, scheduler) {
		return nil, fmt.Errorf("%s: unknown scheduler %q", node.Name, scheduler)
	}
	if err := probe(ctx, scheduler); err != nil {
		return nil, err
	}
	in := &instance{node: node}
	var mechanisms []keeper.Mechanism
	for _, ip := range node.Families {
		r := rules{
			family: ip, podRange: nodeaddr.OfFamily(node.ClusterCIDRs, ip), masqueradeAll: node.Config.MasqueradeAll,
		}
		k, err := open(node.Host.NS, r, scheduler, node.StateDir, node.Log)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", node.Name, err), in.close())
		}
		f := &family{primary: node.Host.Addr(ip), log: node.Log, kernel: k, want: newDesired()}
		in.families = append(in.families, f)
		mechanisms = append(mechanisms, f)
	}
	var err error
	if in.Keeper, err = keeper.New(node, keeper.Tracked, settings(node.Config), mechanisms); err != nil {
		return nil, errors.Join(err, in.close())
	}
	in.Disregard(deviceName)
	return in, nil
}

// Stop implements spec.Instance. The device is the families' common property, and goes last.
func (in *instance) Stop(ctx context.Context) error {
	return errors.Join(in.Keeper.Stop(ctx), removeDevice(in.node.Host.NS), in.close())
}

// Kill implements spec.Instance.
func (in *instance) Kill(ctx context.Context) error {
	return errors.Join(in.Keeper.Kill(ctx), in.close())
}

func (in *instance) close() error {
	var errs []error
	for _, f := range in.families {
		errs = append(errs, f.kernel.close())
	}
	return errors.Join(errs...)
}
