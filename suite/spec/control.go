// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"context"

	"github.com/viplab/viplab/lab"
)

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
	// BreakWatches withholds changes of the cluster from the program until the caller calls resume. An API server breaks
	// the program's watches, answers no request meanwhile, and then says that they are too old (410 Gone): the program
	// has to list everything again.
	BreakWatches(ctx context.Context) (resume func(), err error)
	// Switch kills the program and starts its other mode.
	Switch(ctx context.Context) error
	// Cleanup ends the program and removes everything that it has programmed.
	Cleanup(ctx context.Context) error
	// RefuseWrites makes all that the program writes for some families fail, until the caller calls End. No families
	// means all. What is programmed stays. Settle, Expect and During do not return before End.
	RefuseWrites(ctx context.Context, families ...lab.Family) (Refusal, error)
}

// Refusal is the time in which a node refuses what a program writes.
type Refusal interface {
	// Writes returns how many writes of a family were refused so far.
	Writes(f lab.Family) int
	// End lets the program write again.
	End() error
}

// Traffic is the traffic that During sends while its function runs.
type Traffic interface {
	// Rounds returns when each row has been probed n more times, or has failed.
	Rounds(ctx context.Context, n int) error
}
