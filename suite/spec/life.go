// SPDX-License-Identifier: Apache-2.0

package spec

import "context"

// Life starts and ends a program on one node, the proxier or the enforcer, as the administrator of the node does. A
// scenario that ends a program needs a cluster of its own. Settle does not wait for a node whose program is not
// running.
type Life interface {
	// Kill ends the program as SIGKILL does: its sockets are closed, and what it has programmed in the kernel stays.
	Kill(ctx context.Context) error
	// Start starts the program again, whatever its predecessor left on the node. It returns before the first Apply; call
	// Settle to wait for that. If the program is running, Start kills it first.
	Start(ctx context.Context) error
	// StartWithoutEndpoints is like Start, but the API withholds EndpointSlices until release is called. It returns when
	// the proxier has listed Services. Apply is not called before release.
	StartWithoutEndpoints(ctx context.Context) (release func(), err error)
	// Switch kills the program and starts its other mode.
	Switch(ctx context.Context) error
	// Cleanup ends the program and removes everything that it programmed.
	Cleanup(ctx context.Context) error
}

// Traffic is the traffic that World.During sends.
type Traffic interface {
	// Rounds returns when each row has been probed n more times, or has failed.
	Rounds(ctx context.Context, n int) error
}
