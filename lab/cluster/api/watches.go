// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"sync"
)

// Watches follows the watches of one client, to know what the client has been sent. A client watches each kind of
// object on its own, so what it knows of Services says nothing about what it knows of Nodes. The zero value is ready.
type Watches struct {
	mu   sync.Mutex
	sent map[*watcher]uint64 // the revision up to which each open watch has sent all changes
	more chan struct{}       // closed after a change of sent; nil if nobody waits
}

type watchesKey struct{}

// Handler returns h with its watches followed.
func (w *Watches) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), watchesKey{}, w)))
	})
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
