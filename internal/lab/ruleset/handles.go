// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"context"

	"github.com/viplab/viplab/lab/netns"
)

// AddHandles finds the kernel's numbers of the rules of iptables-nft. It leaves out chains that have changed since the
// rules were read.
func (r *Ruleset) AddHandles(ctx context.Context, ns *netns.NS) error {
	for _, t := range r.Tables {
		if t.Backend != IptablesNFT {
			continue
		}
		text, err := output(ctx, ns, "nft", "-a", "-y", "list", "table", t.Family, t.Name)
		if err != nil {
			return err
		}
		listed, err := parseNFT(text)
		if err != nil {
			return err
		}
		for _, c := range t.Chains {
			if same := listed[0].Chain(c.Name); same != nil && len(same.Rules) == len(c.Rules) {
				for i := range c.Rules {
					c.Rules[i].Handle = same.Rules[i].Handle
				}
			}
		}
	}
	return nil
}
