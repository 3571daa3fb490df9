// SPDX-License-Identifier: Apache-2.0

package spec

import "context"

// Life starts and ends a program on one node, the proxier or the enforcer, as the administrator of the node does. A
// scenario that ends one has a cluster of its own. Settle does not wait for a node without one.
type Life interface {
	// Kill ends the program as SIGKILL does: its sockets are closed, and what it has programmed in the kernel stays.
	Kill(ctx context.Context) error
	// Start places it again, on whatever the node holds, and returns before the first Apply: Settle waits for that. A
	// running program is killed first.
	Start(ctx context.Context) error
	// StartWithoutEndpoints is Start, but the API withholds EndpointSlices until release is called. It returns when the
	// proxier has listed Services; Apply is not called before release.
	StartWithoutEndpoints(ctx context.Context) (release func(), err error)
	// Switch kills it and starts its other mode in its place.
	Switch(ctx context.Context) error
	// Cleanup ends it and removes everything that it has programmed.
	Cleanup(ctx context.Context) error
}

// Traffic is sent while something else happens.
type Traffic interface {
	// Rounds returns when each row has been probed n more times, or has failed.
	Rounds(ctx context.Context, n int) error
}
