// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// dump returns the sets with their entries, and the tables, with a comment above each chain and each rule of a policy.
func (f *family) dump(ctx context.Context) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out bytes.Buffer
	err := f.withSets(func(sets *ipset.Conn) error {
		names, err := sets.Names(setPrefix(f.ip))
		slices.Sort(names)
		for _, name := range names {
			all, err := sets.Entries(ipset.Set{Name: name})
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, "# set %s: %v\n", name, all)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	about, why := f.held.remarks()
	for _, table := range []xtables.TableName{raw, xtables.Filter} {
		text, err := f.programs.SaveText(ctx, table)
		if err != nil {
			return nil, err
		}
		out.Write(xtables.Annotate(text, func(name string) string { return about[name] },
			func(r xtables.Rule) string { return why[r.Option("--comment")] }))
	}
	return out.Bytes(), nil
}

// remarks are what chains are for, and what rules stand for.
func (d *desired) remarks() (about, why map[string]string) {
	about, why = map[string]string{chainPrerouting: prerouting().about}, map[string]string{}
	if d == nil {
		return about, why
	}
	for _, c := range d.chains {
		about[c.name] = c.about
		for id, reason := range c.why {
			why[id] = reason
		}
	}
	return about, why
}
