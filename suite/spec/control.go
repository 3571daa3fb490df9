// SPDX-License-Identifier: Apache-2.0

package spec

import "context"

// Control starts and ends a program, the proxier or the enforcer, on one node, as the node's administrator would. A
// scenario that ends one needs a cluster of its own. Settle does not wait for a node without a running program.
type Control interface {
	// Kill ends the program as SIGKILL does: its sockets close, and what it has programmed in the kernel stays.
	Kill(ctx context.Context) error
	// Start starts the program in any state of the node, and kills a running one first. It returns before the first
	// Apply; Settle waits for that.
	Start(ctx context.Context) error
	// StartWithoutEndpoints is Start, but the API withholds EndpointSlices until the caller calls release. It returns
	// when the proxier has listed Services. Apply is not called before release.
	StartWithoutEndpoints(ctx context.Context) (release func(), err error)
	// Switch kills the program and starts its other mode.
	Switch(ctx context.Context) error
	// Cleanup ends the program and removes everything that it has programmed.
	Cleanup(ctx context.Context) error
}

// Traffic is the traffic that During sends while its function runs.
type Traffic interface {
	// Rounds returns when each row has been probed n more times, or has failed.
	Rounds(ctx context.Context, n int) error
}
