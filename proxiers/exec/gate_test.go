// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestGate: only requests for EndpointSlices wait until the gate is open. The gate reports when the first Services have
// been sent.
func TestGate(t *testing.T) {
	open := make(chan struct{})
	sent := make(chan struct{})
	g := newGate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		flush := http.NewResponseController(w).Flush
		_ = flush() // the header alone tells nothing
		if r.URL.Path == "/api/v1/services" {
			<-sent
			_, _ = io.WriteString(w, "a Service")
			_ = flush()
			<-r.Context().Done() // a watch goes on
		}
	}), open)
	api := httptest.NewServer(g)
	defer api.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	get := func(path string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, api.URL+path, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			err = answer.Body.Close()
		}
		return err
	}
	done := make(chan error, 1)
	go func() { done <- get("/apis/discovery.k8s.io/v1/endpointslices") }()
	if err := get("/api/v1/nodes"); err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		r, _ := http.NewRequestWithContext(watching, http.MethodGet, api.URL+"/api/v1/services", nil)
		if answer, err := http.DefaultClient.Do(r); err == nil {
			_, _ = io.ReadAll(answer.Body)
		}
	}()
	select {
	case <-g.listed:
		t.Error("told of Services before any was sent")
	case <-done:
		t.Error("the question about EndpointSlices was answered behind a closed gate")
	case sent <- struct{}{}:
	}
	p := &process{done: make(chan struct{})}
	if err := g.wait(ctx, p); err != nil {
		t.Error(err)
	}
	close(open)
	if err := <-done; err != nil {
		t.Errorf("behind an open gate: %v", err)
	}
}
