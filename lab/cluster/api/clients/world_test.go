// SPDX-License-Identifier: Apache-2.0

package clients

import (
	"bufio"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/api"
	"github.com/viplab/viplab/lab/cluster/store"
)

// patience bounds a whole test, on the slowest machine.
const patience = 10 * time.Minute

// world is a cluster with a program that follows it.
type world struct {
	*testing.T
	ctx     context.Context
	cluster *cluster.Cluster
	server  *api.Server
	watches api.Watches

	mu    sync.Mutex
	asked []request
	more  chan struct{} // holds a value after a new request

	stdin io.Closer
	lines *bufio.Scanner
	wait  func() error
	known map[string]string // the revision of each object that the program knows, by resource and name
}

// request is what the program has asked of the API.
type request struct {
	method, resource string
	query            url.Values
}

// whole reports whether the answer has all objects of the resource.
func (r request) whole() bool {
	return r.method == http.MethodGet && (!r.query.Has("watch") || r.query.Has("sendInitialEvents"))
}

func newWorld(t *testing.T, env ...string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	c, err := cluster.New(ctx, lab.Topology{Nodes: []lab.NodeSpec{{Name: "n1"}, {Name: "n2"}}})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, ctx: ctx, cluster: c, server: api.New(c.Store()), known: map[string]string{},
		more: make(chan struct{}, 1)}
	t.Cleanup(func() {
		if err := errors.Join(w.server.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	ns := c.Lab().Node("n1").NS
	endpoint, err := w.server.ServeWithHandler(ctx, ns, "127.0.0.1:0", w.watches.Handler(w.noting(w.server)))
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, endpoint.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(env, "KUBECONFIG="+config)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	w.stdin, w.lines, w.wait = stdin, bufio.NewScanner(stdout), cmd.Wait
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() }) // both fail if the program has ended
	return w
}

// noting returns h with its requests noted.
func (w *world) noting(h http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.asked = append(w.asked, request{r.Method, path.Base(r.URL.Path), r.URL.Query()})
		w.mu.Unlock()
		select {
		case w.more <- struct{}{}:
		default: // it is known already
		}
		h.ServeHTTP(out, r)
	})
}

// requests returns the requests for the followed resources since the last call.
func (w *world) requests() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []request
	for _, r := range w.asked {
		if kinds[r.resource] != "" {
			out = append(out, r)
		}
	}
	w.asked = nil
	return out
}

// kinds are those that the program follows, by resource.
var kinds = map[string]store.Kind{
	"services": store.KindService, "endpointslices": store.KindEndpointSlice, "nodes": store.KindNode,
	"pods": store.KindPod,
}

// stored returns what the program should know.
func (w *world) stored() map[string]string {
	out := map[string]string{}
	s := w.cluster.Store().Snapshot()
	for resource, kind := range kinds {
		for _, o := range s.Objects(kind) {
			out[resource+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")] = o.GetResourceVersion()
		}
	}
	return out
}

// read reads one line of the program and returns its first word.
func (w *world) read() string {
	w.Helper()
	if !w.lines.Scan() {
		w.Fatalf("the program has ended: %v", w.lines.Err())
	}
	return w.take(w.known)
}

// take notes in a map what the last line says.
func (w *world) take(into map[string]string) string {
	w.Helper()
	words := strings.Fields(w.lines.Text())
	if len(words) != 4 {
		return words[0]
	}
	name := words[1] + " " + words[2]
	_, known := into[name]
	switch event := words[0]; {
	case (event == "add" || event == "list") && !known, event == "update" && known:
		into[name] = words[3]
	case event == "delete" && known:
		delete(into, name)
	default:
		w.Errorf("%q, of an object that is known: %t", w.lines.Text(), known)
	}
	return words[0]
}

// follows reads events until the program knows what the store has.
func (w *world) follows() {
	w.Helper()
	for !maps.Equal(w.known, w.stored()) {
		w.read()
	}
}

// end ends the program and returns what its listers held.
func (w *world) end() map[string]string {
	w.Helper()
	w.stdin.Close()
	listed := map[string]string{}
	for w.lines.Scan() {
		if strings.HasPrefix(w.lines.Text(), "list ") {
			w.take(listed)
		}
	}
	if err := w.wait(); err != nil {
		w.Error(err)
	}
	return listed
}
