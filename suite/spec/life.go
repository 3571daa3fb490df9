// SPDX-License-Identifier: Apache-2.0

package spec

import "context"

// Life is a program on one node, the proxier or the enforcer, as the administrator of the node handles it. A scenario
// that ends one has a cluster of its own. While a node lacks one, Settle does not wait for it.
type Life interface {
	// Kill ends the program as SIGKILL does: its sockets are closed, and what it has programmed in the kernel stays.
	Kill(ctx context.Context) error
	// Start places it again, on whatever there is, and returns before it obeys anything: Settle waits for that. One that
	// is still there is killed first.
	Start(ctx context.Context) error
	// StartWithoutEndpoints is Start, but the API keeps EndpointSlices back until release is called. It returns when the
	// proxier has been told of Services; one that is told everything by Apply is told nothing before.
	StartWithoutEndpoints(ctx context.Context) (release func(), err error)
	// Switch kills it and starts its Other in its place.
	Switch(ctx context.Context) error
	// Cleanup ends it and takes everything away that it has programmed.
	Cleanup(ctx context.Context) error
}

// Switcher is a proxier with another mode. Either of them, when it starts, takes away what the other has left on the
// node. It declares ModeSwitch.
type Switcher interface {
	Proxier
	Other() Proxier
}

// Cleaner is an instance whose Stop leaves on purpose what it has programmed. It declares Cleanup.
type Cleaner interface {
	Instance
	// Cleanup is Stop that leaves nothing.
	Cleanup(ctx context.Context) error
}

// Traffic is what goes on beside something else.
type Traffic interface {
	// Rounds returns when each row has been probed n more times, or has failed.
	Rounds(ctx context.Context, n int) error
}
