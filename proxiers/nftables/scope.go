// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"

	"github.com/viplab/viplab/proxiers/model"
)

// scope is the set of endpoints that a traffic policy leaves.
type scope string

// The scopes are prefixes of the names of chains and maps.
const (
	everywhere scope = ""
	onNode     scope = "local-"
)

// endpoints returns those of a port in the scope, nil if no frontend leads to the scope.
func (s scope) endpoints(p *model.Port) []model.Endpoint {
	cluster, local := p.Used()
	if s == onNode {
		return local
	}
	return cluster
}

// pickChain picks one of n endpoints. All frontends with n endpoints share it.
func (s scope) pickChain(n int) string { return fmt.Sprintf("%spick-%d", s, n) }

// useChain translates to the i-th endpoint of the frontend, which endpointMap has.
func (s scope) useChain(i int) string { return fmt.Sprintf("%suse-%d", s, i) }

func (s scope) endpointMap(i int) string { return fmt.Sprintf("%sendpoints-%d", s, i) }

// stickyChain is the chain of a port with session affinity that picks an endpoint.
func (s scope) stickyChain(id model.PortID) string {
	if s == onNode {
		return prefixLocal + portName(id)
	}
	return prefixService + portName(id)
}
