// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/viplab/viplab/internal/proxiers/xtables"
	"github.com/viplab/viplab/proxiers/model"
)

// Dump implements kit.Mechanism: the relays, and the rules that lead to them.
func (f *family) Dump(ctx context.Context) ([]byte, error) {
	var all bytes.Buffer
	w := tabwriter.NewWriter(&all, 0, 0, 1, ' ', 0)
	byName := func(a, b model.PortID) int {
		return cmp.Or(strings.Compare(a.String(), b.String()), cmp.Compare(a.Protocol, b.Protocol))
	}
	for _, id := range slices.SortedFunc(maps.Keys(f.portals.open), byName) {
		at := f.portals.open[id]
		at.cluster.describe(w, clusterWay(id))
		at.local.describe(w, localWay(id))
		if at.taken != "" {
			fmt.Fprintf(w, "# %s: its NodePort is not served: %s\n", id, at.taken)
		}
	}
	w.Flush()
	text, err := f.programs.SaveText(ctx, xtables.Filter, xtables.NAT)
	return append(all.Bytes(), text...), err
}

// Remarks implements kit.Remarker, with the relays.
func (f *family) Remarks() map[string]string {
	all := map[string]string{}
	for id, at := range f.portals.open {
		for name, r := range map[string]*relay{clusterWay(id): at.cluster, localWay(id): at.local} {
			if r != nil && r.listener != nil {
				all[r.addr().String()] = fmt.Sprintf("relay of %s, to %v", name, r.balancer.list())
			}
		}
	}
	return all
}

func (r *relay) describe(w *tabwriter.Writer, name string) {
	if r == nil {
		return
	}
	at := "shut"
	if r.listener != nil {
		at = "at " + r.addr().String()
	}
	fmt.Fprintf(w, "# %s:\trelay for %s %s,\t%d connected,\tto %v\n", name, r.protocol, at, r.clients.Load(),
		r.balancer.list())
}
