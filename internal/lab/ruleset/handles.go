// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"cmp"
	"context"
	"slices"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/lab/netns"
)

// AddHandles finds the kernel's numbers of the rules of iptables-nft. It leaves out chains that have changed since the
// rules were read.
func (r *Ruleset) AddHandles(ctx context.Context, ns *netns.NS) error {
	for _, t := range r.Tables {
		if t.Backend != IptablesNFT || t.hasHandles() {
			continue
		}
		listed, err := t.list(ctx, ns)
		if err != nil {
			return err
		}
		t.takeHandles(listed)
	}
	return nil
}

// hasHandles reports whether the numbers of all rules are known.
func (t *Table) hasHandles() bool {
	return !slices.ContainsFunc(t.Chains, func(c *Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r *Rule) bool { return r.Handle == 0 })
	})
}

// list returns the table as nft prints it.
func (t *Table) list(ctx context.Context, ns *netns.NS) (*Table, error) {
	text, err := output(ctx, ns, "nft", "-a", "-y", "list", "table", t.Family, t.Name)
	if err != nil {
		return nil, err
	}
	listed, err := parseNFT(text)
	if err != nil || len(listed) == 0 {
		return &Table{}, err
	}
	return listed[0], nil
}

// takeHandles takes the numbers of rules from the listing of nft, but for chains that are not the same.
func (t *Table) takeHandles(listed *Table) {
	for _, c := range t.Chains {
		if same := listed.Chain(c.Name); same != nil && len(same.Rules) == len(c.Rules) {
			for i := range c.Rules {
				c.Rules[i].Handle = same.Rules[i].Handle
			}
		}
	}
}

// Refresh reads a table of nftables or of iptables-nft again, with the numbers of rules. Rules whose text is the same
// keep their annotation.
func (t *Table) Refresh(ctx context.Context, ns *netns.NS) error {
	now, err := t.list(ctx, ns)
	if err != nil {
		return err
	}
	if t.Backend == IptablesNFT {
		if now, err = t.save(ctx, ns, now); err != nil {
			return err
		}
	}
	about := map[string]string{}
	for _, c := range t.Chains {
		for _, r := range c.Rules {
			about[c.Name+"\n"+r.Text] = r.About
		}
	}
	for _, c := range now.Chains {
		for _, r := range c.Rules {
			r.About = about[c.Name+"\n"+r.Text]
		}
	}
	for _, s := range now.Sets {
		if old := t.Set(s.Name); old != nil {
			s.keep(old)
		}
	}
	t.Chains, t.Sets = now.Chains, now.Sets
	return nil
}

// keep takes the annotations of elements from what the set was before.
func (s *Set) keep(old *Set) {
	about := map[string]string{}
	for _, e := range old.Elements {
		about[e.Text] = e.About
	}
	s.Comment = cmp.Or(s.Comment, old.Comment)
	for i := range s.Elements {
		s.Elements[i].About = about[s.Elements[i].Text]
	}
}

// save returns the table as iptables prints it, with the numbers of the listing of nft.
func (t *Table) save(ctx context.Context, ns *netns.NS, listed *Table) (*Table, error) {
	i := slices.IndexFunc(saves, func(s saver) bool { return s.backend == t.Backend && s.family == t.Family })
	text, err := iptablessave.Read(ctx, func() (string, error) {
		return output(ctx, ns, saves[i].program, "-c", "-t", t.Name)
	})
	if err != nil {
		return nil, err
	}
	saved, err := parseSaved(t.Backend, t.Family, text, func(_, chain string) bool { return listed.Chain(chain) != nil })
	if err != nil || len(saved) == 0 {
		return &Table{}, err
	}
	saved[0].takeHandles(listed)
	return saved[0], nil
}
