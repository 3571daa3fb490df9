// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"

	"github.com/viplab/viplab/internal/proxiers/conntrack"
	"github.com/viplab/viplab/internal/proxiers/keeper"
	"github.com/viplab/viplab/suite/spec"
)

// instance is the proxier on one node.
type instance struct {
	*keeper.Keeper
	families []*family
}

func newInstance(node spec.Node) (*instance, error) {
	in := &instance{}
	var mechanisms []keeper.Mechanism
	for _, ip := range node.Families {
		f, err := newFamily(node, ip)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", node.Name, err)
		}
		in.families = append(in.families, f)
		mechanisms = append(mechanisms, f)
	}
	var err error
	in.Keeper, err = keeper.New(node, keeper.Tracked, conntrack.Timeouts(), mechanisms)
	return in, err
}
