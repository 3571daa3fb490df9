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

// gate withholds the API's answers about endpoints until it is opened. It notices when the process has listed Services.
type gate struct {
	api        http.Handler
	open       <-chan struct{}
	listed     chan struct{} // closed when the process has listed Services
	markListed func()        // closes listed, once
}

func newGate(api http.Handler, open <-chan struct{}) *gate {
	g := &gate{api: api, open: open, listed: make(chan struct{})}
	g.markListed = sync.OnceFunc(func() { close(g.listed) })
	return g
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]; resource {
	case "endpointslices", "endpoints":
		select {
		case <-g.open:
		case <-r.Context().Done():
			return
		}
	case "services":
		w = &serviceAnswer{ResponseWriter: w, sent: g.markListed}
		defer g.markListed() // a list is complete
	}
	g.api.ServeHTTP(w, r)
}

// wait returns when the process has listed Services.
func (g *gate) wait(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, machine.Limit(obeyLimit), errors.New("the limit for it is over"))
	defer cancel()
	select {
	case <-g.listed:
		return nil
	case <-p.done:
		return fmt.Errorf("it %s before it had asked for Services", p.end)
	case <-ctx.Done():
		return fmt.Errorf("it has not asked for Services: %w", context.Cause(ctx))
	}
}

// serviceAnswer is the answer to a request for Services. A watch starts with the existing Services and flushes them in
// one batch.
type serviceAnswer struct {
	http.ResponseWriter
	sent    func()
	written bool
}

func (a *serviceAnswer) Write(b []byte) (int, error) {
	a.written = true
	return a.ResponseWriter.Write(b)
}

// FlushError implements the interface that http.ResponseController looks for.
func (a *serviceAnswer) FlushError() error {
	f, ok := a.ResponseWriter.(interface{ FlushError() error })
	if !ok {
		return errors.ErrUnsupported
	}
	err := f.FlushError()
	if a.written {
		a.sent()
	}
	return err
}
