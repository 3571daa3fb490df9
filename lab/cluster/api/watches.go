// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"github.com/viplab/viplab/lab/cluster/store"
)

// Watches follows the watches of one client, to know what the client has been sent. A client watches each kind of
// object on its own, so what it knows of Services says nothing about what it knows of Nodes. The zero value is ready.
type Watches struct {
	mu   sync.Mutex
	sent map[*watcher]uint64 // the revision up to which each open watch has sent all changes
	more chan struct{}       // closed after a change of sent; nil if nobody waits

	requests  sync.WaitGroup
	life      context.Context // of the requests; nil: there has been none since Break
	end       context.CancelFunc
	withheld  chan struct{} // closed when requests are answered again; nil while they are
	forgotten uint64        // watches from older revisions are too old
}

type watchesKey struct{}

// Handler returns h with its watches followed.
func (w *Watches) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		ctx, leave := w.enter(context.WithValue(r.Context(), watchesKey{}, w))
		defer leave()
		if ctx.Err() == nil {
			h.ServeHTTP(out, r.WithContext(ctx))
		}
	})
}

// enter waits until requests are answered, and returns the context of one, which Break ends.
func (w *Watches) enter(ctx context.Context) (_ context.Context, leave func()) {
	w.mu.Lock()
	for w.withheld != nil && ctx.Err() == nil {
		answered := w.withheld
		w.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
		}
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return ctx, func() {}
	}
	if w.life == nil {
		w.life, w.end = context.WithCancel(context.Background())
	}
	w.requests.Add(1)
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(w.life, cancel)
	return ctx, func() { stop(); cancel(); w.requests.Done() }
}

// Break ends all requests of the client, its watches among them, and withholds new ones until the caller calls resume.
// The API has then forgotten the history before a revision: it answers a watch from an older one with 410 Gone (reason
// Expired), so that the client must list again.
func (w *Watches) Break() (resume func(forgotten uint64)) {
	w.mu.Lock()
	w.withheld = make(chan struct{})
	if w.end != nil {
		w.end()
		w.life, w.end = nil, nil
	}
	w.mu.Unlock()
	w.requests.Wait()
	return func(forgotten uint64) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.forgotten = forgotten
		close(w.withheld)
		w.withheld = nil
	}
}

// remember returns store.ErrTooOld for a watch from a revision that Break has made the API forget.
func (w *Watches) remember(from uint64) error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if from < w.forgotten {
		return fmt.Errorf("%w: %d (oldest is %d)", store.ErrTooOld, from, w.forgotten)
	}
	return nil
}

// Sent returns when each open watch has sent the changes up to a revision of the store, or with the error of the
// context. It does not know of a client that has listed objects and does not watch them yet.
func (w *Watches) Sent(ctx context.Context, revision uint64) error {
	for {
		more := w.behind(revision)
		if more == nil {
			return nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// behind returns nil if all watches have sent a revision, and otherwise a channel that is closed after progress.
func (w *Watches) behind(revision uint64) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, sent := range w.sent {
		if sent < revision {
			if w.more == nil {
				w.more = make(chan struct{})
			}
			return w.more
		}
	}
	return nil
}

// reached notes how far a watch has come. Events and Leases have revisions of their own, so their watches are not
// followed.
func (w *Watches) reached(a *watcher) {
	if c, ok := a.cursor.(*storeCursor); ok && w != nil {
		w.change(func() {
			if w.sent == nil {
				w.sent = map[*watcher]uint64{}
			}
			w.sent[a] = c.at
		})
	}
}

// ended forgets a watch.
func (w *Watches) ended(a *watcher) {
	if w != nil {
		w.change(func() { delete(w.sent, a) })
	}
}

func (w *Watches) change(apply func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	apply()
	if w.more != nil {
		close(w.more)
		w.more = nil
	}
}
