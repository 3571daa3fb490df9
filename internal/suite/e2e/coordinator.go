// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
)

// coordinator is to parallel processes of a test suite what Ginkgo's own command is: it deals out the specs and
// collects their reports. The reports arrive one by one, so what has run is known at any moment.
//
// It speaks the protocol of github.com/onsi/ginkgo/v2/internal/parallel_support over HTTP, which a process uses if the
// variable GINKGO_PARALLEL_PROTOCOL is "HTTP".
type coordinator struct {
	server  http.Server
	report  func(specReport)
	aborted context.Context

	reporting sync.Mutex // held while report works, which may take time

	mu      sync.Mutex
	next    int            // the next group of specs
	running map[int]bool   // processes, from 1
	states  map[string]any // by path: the JSON text of what the first process has done for all
	ended   []suiteReport  // those of all processes but the first
}

// protocol makes processes use HTTP, where gob encoding would require the types of their release of Ginkgo.
const protocol = "GINKGO_PARALLEL_PROTOCOL=HTTP"

// suiteReport is a types.Report of Ginkgo, of which nothing is read.
type suiteReport = json.RawMessage

// The first process does these for all, and the others wait for its result.
const (
	reportBeforeSuite = "/report-before-suite"
	beforeSuite       = "/before-suite"
)

// coordinate serves a number of processes on a listener. It calls report for each spec that has ended, one at a time.
// Processes end early once the context has ended.
func coordinate(ctx context.Context, l net.Listener, processes int, report func(specReport)) *coordinator {
	c := &coordinator{report: report, aborted: ctx, running: map[int]bool{}, states: map[string]any{}}
	for i := range processes {
		c.running[i+1] = true
	}
	mux := http.NewServeMux()
	ignored := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	for _, path := range []string{"/up", "/suite-will-begin", "/emit-output", "/progress-report"} {
		mux.HandleFunc(path, ignored)
	}
	mux.HandleFunc("/did-run", c.didRun)
	mux.HandleFunc("/suite-did-end", c.suiteDidEnd)
	for _, path := range []string{reportBeforeSuite, beforeSuite} {
		mux.HandleFunc(path+"-completed", func(w http.ResponseWriter, r *http.Request) { c.complete(path, w, r) })
		mux.HandleFunc(path+"-state", func(w http.ResponseWriter, _ *http.Request) { c.state(path, w) })
	}
	mux.HandleFunc("/have-nonprimary-procs-finished", c.othersFinished)
	mux.HandleFunc("/aggregated-nonprimary-procs-report", c.othersReport)
	mux.HandleFunc("/counter", c.counter)
	mux.HandleFunc("/abort", c.abort)
	c.server.Handler = mux
	go func() { _ = c.server.Serve(l) }() // until close
	return c
}

func (c *coordinator) close() { _ = c.server.Close() }

// exited notes that a process has ended.
func (c *coordinator) exited(process int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, process)
}

func (c *coordinator) didRun(w http.ResponseWriter, r *http.Request) {
	var report specReport
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.report(report)
}

func (c *coordinator) suiteDidEnd(w http.ResponseWriter, r *http.Request) {
	var report suiteReport
	if err := json.NewDecoder(r.Body).Decode(&report); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = append(c.ended, report)
}

// complete keeps what the first process has done for all.
func (c *coordinator) complete(path string, w http.ResponseWriter, r *http.Request) {
	var state json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&state); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states[path] = state
}

// state answers with what the first process has done: too early as long as it does it, and gone if it has ended.
func (c *coordinator) state(path string, w http.ResponseWriter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state, done := c.states[path]; {
	case done:
		_ = json.NewEncoder(w).Encode(state)
	case c.running[1]:
		w.WriteHeader(http.StatusTooEarly)
	default:
		w.WriteHeader(http.StatusGone)
	}
}

// others reports whether processes besides the first run. c.mu must be held.
func (c *coordinator) others() bool {
	return len(c.running) > 1 || len(c.running) == 1 && !c.running[1]
}

// othersFinished tells the first process when it may begin with the specs that want to be alone.
func (c *coordinator) othersFinished(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.others() {
		w.WriteHeader(http.StatusTooEarly)
	}
}

// othersReport answers the first process, which writes files that nobody asks for. Any of the reports will do.
func (c *coordinator) othersReport(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.others():
		w.WriteHeader(http.StatusTooEarly)
	case len(c.ended) == 0:
		w.WriteHeader(http.StatusGone)
	default:
		_ = json.NewEncoder(w).Encode(c.ended[0])
	}
}

func (c *coordinator) counter(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]int{"Index": c.next})
	c.next++
}

// abort tells a process whether to go on. A process that asks for an end (POST) cannot: each ends for itself.
func (c *coordinator) abort(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet && c.aborted.Err() != nil {
		w.WriteHeader(http.StatusGone)
	}
}
