// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/viplab/viplab/suite/spec"
)

// role is the purpose of a program on its nodes. It is part of messages and file names.
type role string

const (
	proxierRole  role = "proxier"
	enforcerRole role = "enforcer"
)

// fleet is one program on every node.
type fleet struct {
	role    role
	program spec.Proxier
	agents  []*agent // one for each node, in their order
	logs    *logBook
	log     *slog.Logger
}

func newFleet(r role, program spec.Proxier) *fleet {
	logs := &logBook{}
	return &fleet{
		role: r, program: program, logs: logs,
		log: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// fleets are the programs on the nodes, in the order in which they are started.
func (e *environment) fleets() []*fleet {
	if e.enforcer == nil {
		return []*fleet{e.proxier}
	}
	return []*fleet{e.proxier, e.enforcer}
}

// enforcing returns the fleet that enforces network policies: the enforcers, or proxiers that enforce policies
// themselves.
func (e *environment) enforcing() *fleet {
	return cmp.Or(e.enforcer, e.proxier)
}

// rules is the suffix of the file with the fleet's rules on a node.
func (f *fleet) rules() string {
	if f.role == enforcerRole {
		return "-policies.txt"
	}
	return "-rules.txt"
}

// begin begins to apply states on every node.
func (f *fleet) begin() {
	for _, a := range f.agents {
		a.begin()
	}
}

// wait waits until every running agent has applied the revision.
func (f *fleet) wait(ctx context.Context, revision uint64, limit timeLimit) error {
	for _, a := range f.agents {
		if a.gone {
			continue
		}
		if err := a.wait(ctx, revision, limit); err != nil {
			return err
		}
	}
	return nil
}

// agent returns the agent of a node, or nil if there is none.
func (f *fleet) agent(node string) *agent {
	for _, a := range f.agents {
		if a.node == node {
			return a
		}
	}
	return nil
}

// end ends all agents at once.
func (f *fleet) end(ctx context.Context, limit timeLimit, how stopMethod) error {
	errs := make([]error, len(f.agents))
	var wg sync.WaitGroup
	for i, a := range f.agents {
		wg.Go(func() { errs[i] = how(a, ctx, limit) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// logBook keeps the logs of a fleet's programs for the evidence of a failure. It is safe for concurrent use.
type logBook struct {
	mu   sync.Mutex
	text []byte
}

// logLimit is how much of the end of a log is kept, so that a program that floods its log does not exhaust the memory.
const logLimit = 1 << 20

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if over := len(b.text) - logLimit; over > logLimit {
		b.text = append([]byte(nil), b.text[over:]...)
	}
	return len(p), nil
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}
