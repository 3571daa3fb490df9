// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/viplab/viplab/internal/machine"
)

// gate stands before the API and keeps back what it has to say about endpoints, until it is opened. It knows when the
// process has been told of Services.
type gate struct {
	api  http.Handler
	open <-chan struct{}
	told chan struct{}
	tell func() // closes told, once
}

func newGate(api http.Handler, open <-chan struct{}) *gate {
	g := &gate{api: api, open: open, told: make(chan struct{})}
	g.tell = sync.OnceFunc(func() { close(g.told) })
	return g
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; resource {
	case "endpointslices", "endpoints":
		select {
		case <-g.open:
		case <-r.Context().Done():
			return
		}
	case "services":
		w = &telling{ResponseWriter: w, tell: g.tell}
		defer g.tell() // a list is told once it is complete
	}
	g.api.ServeHTTP(w, r)
}

// wait returns when the process has been told of Services.
func (g *gate) wait(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, machine.Limit(obeyLimit), errors.New("the limit for it is over"))
	defer cancel()
	select {
	case <-g.told:
		return nil
	case <-p.done:
		return fmt.Errorf("it %s before it had asked for Services", p.end)
	case <-ctx.Done():
		return fmt.Errorf("it has not asked for Services: %w", context.Cause(ctx))
	}
}

// telling is the answer to a question about Services. A watch begins with those there are, and sends them off together.
type telling struct {
	http.ResponseWriter
	tell    func()
	written bool
}

func (t *telling) Write(b []byte) (int, error) {
	t.written = true
	return t.ResponseWriter.Write(b)
}

// FlushError is what http.ResponseController calls.
func (t *telling) FlushError() error {
	f, ok := t.ResponseWriter.(interface{ FlushError() error })
	if !ok {
		return errors.ErrUnsupported
	}
	err := f.FlushError()
	if t.written {
		t.tell()
	}
	return err
}
