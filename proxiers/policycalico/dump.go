// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/ipset"
	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// Dump implements policy.Mechanism. It returns the sets with their entries, and the tables, with a comment above each
// chain and each rule of a policy.
func (f *family) Dump(ctx context.Context) ([]byte, error) {
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
	text, err := f.programs.SaveText(ctx, raw, xtables.Filter)
	if err != nil {
		return nil, err
	}
	about, why := f.held.remarks()
	out.Write(xtables.Annotate(text, about, func(r xtables.Rule) string { return why[r.Option("--comment")] }))
	return out.Bytes(), nil
}

// Remarks implements kit.Remarker.
func (f *family) Remarks() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	about, why := f.held.remarks()
	maps.Copy(about, why)
	return about
}

// remarks returns the purposes of chains by name, and the reasons of rules by id.
func (d *desired) remarks() (about, why map[string]string) {
	about, why = map[string]string{chainPrerouting: prerouting().about}, map[string]string{}
	if d != nil {
		for _, c := range d.chains {
			about[c.Name] = c.about
			maps.Copy(why, c.why)
		}
	}
	return about, why
}
