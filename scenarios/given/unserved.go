// SPDX-License-Identifier: Apache-2.0

package given

import "github.com/viplab/viplab/suite/spec"

// Unserved are probes of Services that have no endpoint to serve them. A proxier that promises it refuses them, any
// other answers none: a relay takes a connection before it finds that there is nobody to give it to.
func Unserved(probes ...spec.Row) []spec.Row {
	var rows []spec.Row
	for _, r := range probes {
		refused, other := r, r
		refused.If, refused.Want = spec.NoEndpointsRefused, spec.Refused
		other.Unless, other.Want = spec.NoEndpointsRefused, spec.NotServed
		rows = append(rows, refused, other)
	}
	return rows
}
