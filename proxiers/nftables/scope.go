// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"

	"github.com/viplab/viplab/proxiers/model"
)

// scope is the set of endpoints that a traffic policy allows.
type scope string

// The scopes are prefixes of the names of chains and maps.
const (
	everywhere scope = ""
	onNode     scope = "local-"
)

// endpoints returns the endpoints of a port in the scope, or nil if no frontend leads to the scope.
func (s scope) endpoints(p *model.Port) []model.Endpoint {
	cluster, local := p.Used()
	if s == onNode {
		return local
	}
	return cluster
}

// pickChain returns the name of the chain that picks one of n endpoints. All frontends with n endpoints share it.
func (s scope) pickChain(n int) string { return fmt.Sprintf("%spick-%d", s, n) }

// useChain returns the name of the chain that translates to the i-th endpoint of the frontend (see endpointMap).
func (s scope) useChain(i int) string { return fmt.Sprintf("%suse-%d", s, i) }

func (s scope) endpointMap(i int) string { return fmt.Sprintf("%sendpoints-%d", s, i) }

// stickyChain returns the name of the chain that picks an endpoint of a port with session affinity.
func (s scope) stickyChain(id model.PortID) string {
	if s == onNode {
		return prefixLocal + portName(id)
	}
	return prefixService + portName(id)
}
