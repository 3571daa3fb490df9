// SPDX-License-Identifier: Apache-2.0

// Package live holds a lab that stays: a cluster with a proxier, its API on a socket of the machine, and the requests
// of commands such as "viplab exec".
package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/api"
	"github.com/viplab/viplab/lab/cluster/images"
	"github.com/viplab/viplab/lab/cluster/kubelet"
	"github.com/viplab/viplab/lab/sandbox"
	"github.com/viplab/viplab/suite/spec"
)

// Config describes a lab.
type Config struct {
	Name     string
	Topology lab.Topology
	Proxier  spec.Proxier
	Enforcer spec.Proxier // nil if there is none
	Content
}

// Content is what a lab starts with.
type Content struct {
	// Images are those that pods may name beside the built-in ones.
	Images map[string]images.Source `json:",omitempty"`
	// Manifests are applied at the start.
	Manifests []Manifest
}

// Manifest is the text of a file with objects of Kubernetes.
type Manifest struct {
	Source string // the file's name, for messages
	Text   []byte
}

// Lab is a lab that stays until its process ends.
type Lab struct {
	name     string
	began    time.Time
	standing *engine.Standing
	api      *api.Server
	endpoint *api.Endpoint // on the machine; nil for a lab of Start
	inside   *api.Endpoint // on the first node
	proxier  Finder
	end      context.CancelFunc
	tracing  sync.Mutex // the probes of two traces would show in each other
}

// Sockets are what a lab gets from the machine, through the walls of its sandbox.
type Sockets struct {
	API     *os.File // a TCP listener
	Control *os.File // a Unix listener
	Folder  *os.File // the lab's folder, locked
}

// Files returns the files in the order of FromFiles.
func (s Sockets) Files() []*os.File { return []*os.File{s.API, s.Control, s.Folder} }

// FromFiles reverses Files.
func FromFiles(f []*os.File) Sockets { return Sockets{API: f[0], Control: f[1], Folder: f[2]} }

// path returns the path of the lab's folder inside the sandbox, where another file system covers it. The kernel
// resolves it from the open descriptor.
func (s Sockets) path(name ...string) string {
	return filepath.Join(append([]string{fmt.Sprintf("/proc/self/fd/%d", s.Folder.Fd())}, name...)...)
}

// WriteFile writes a file in the lab's folder, for its owner alone.
func (s Sockets) WriteFile(name string, data []byte) error {
	err := os.WriteFile(s.path(name), data, 0o600)
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		err = at.Err // the path means nothing to others
	}
	if err != nil {
		return fmt.Errorf("write the file %q in the lab's folder: %w", name, err)
	}
	return nil
}

// Finder returns the proxier that the arguments of a Switch name.
type Finder func(ctx context.Context, call *control.Call) (spec.Proxier, error)

// Run builds the lab and serves it until the context ends or a command ends it. At the end it removes the lab's folder.
// builder is what ServeBuilds has returned on the machine.
func Run(ctx context.Context, s Sockets, builder *os.File, c Config, proxier Finder) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	l := &Lab{name: c.Name, began: time.Now(), proxier: proxier, end: end}
	if err := l.start(ctx, c, newBuilds(builder)); err != nil {
		return err
	}
	return l.serve(ctx, s, func() {})
}

// Keep serves a cluster that another program has built, until the context ends or a command ends it. It calls ready
// once commands find the lab. At the end it removes the lab's folder.
func Keep(ctx context.Context, s Sockets, name string, standing *engine.Standing, proxier Finder, ready func()) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	l := &Lab{name: name, began: time.Now(), standing: standing, proxier: proxier, end: end}
	return l.serve(ctx, s, ready)
}

// Remove removes the folder of a lab from inside.
func (s Sockets) Remove(name string) error { return os.RemoveAll(s.path() + "/../" + name) }

// serve opens the API and carries out requests until the context ends.
func (l *Lab) serve(ctx context.Context, s Sockets, ready func()) error {
	listener, err := net.FileListener(s.API)
	if err != nil {
		return err
	}
	if l.api == nil { // of a cluster that another program has built
		l.api = api.New(l.standing.Cluster().Store())
	}
	if err := l.open(ctx); err != nil {
		return err
	}
	if l.endpoint, err = l.api.ServeOn(ctx, listener); err != nil {
		return err
	}
	if err := s.WriteFile(registry.Kubeconfig, l.endpoint.Kubeconfig()); err != nil {
		return err
	}
	requests, err := net.FileListener(s.Control)
	if err != nil {
		return err
	}
	go control.Serve(ctx, requests.(*net.UnixListener), l.handle)
	ready()
	<-ctx.Done()
	return s.Remove(l.name) // what is left ends with the sandbox
}

// open connects the API with what runs in the cluster.
func (l *Lab) open(ctx context.Context) (err error) {
	go l.api.RecordScheduling(ctx)
	go l.api.RecordEvents(ctx)
	if c := l.standing.Cluster().Containers(); c != nil {
		l.api.SetContainers(c)
		l.inside, err = l.publish(ctx, l.standing.Cluster())
	}
	return err
}

// start builds the cluster, applies the manifests and places the programs.
func (l *Lab) start(ctx context.Context, c Config, b *builds) error {
	objects, err := Objects(c.Manifests, "", io.Discard) // "viplab up" has printed the warnings
	if err != nil {
		return err
	}
	folder, err := sandbox.TempDir("images-")
	if err != nil {
		return err
	}
	own, err := images.Make(c.Images, folder)
	if err != nil {
		return err
	}
	made, err := programs(b, folder)
	if err != nil {
		return err
	}
	known := kubelet.Builtin().With(made).With(own)
	built, err := cluster.New(ctx, c.Topology, cluster.RunPrograms(known), cluster.BalanceLoads())
	if err != nil {
		return fmt.Errorf("build the lab: %w", err)
	}
	l.api = api.New(built.Store())
	err = built.Store().ServeAccounts(l.api.CA())
	if err := errors.Join(err, built.Store().Apply(append(addons(), objects...)...)); err != nil {
		return errors.Join(err, built.Close())
	}
	if l.standing, err = engine.Stand(ctx, built, engine.Options{Enforcer: c.Enforcer}, c.Proxier); err != nil {
		return err
	}
	return l.settled(ctx, SettleArgs{})
}

// handle carries out a request.
func (l *Lab) handle(ctx context.Context, call *control.Call) (any, error) {
	handlers := map[string]control.Handler{
		Status:    l.status,
		Down:      l.down,
		Places:    l.places,
		Exec:      l.exec,
		Apply:     l.apply,
		Settle:    l.settle,
		Switch:    l.change,
		Probe:     l.probe,
		Conntrack: l.conntrack,
		Capture:   l.capture,
		Rules:     l.rules,
		Trace:     l.trace,
	}
	h := handlers[call.Command]
	if h == nil {
		return nil, fmt.Errorf("the lab does not know the request %q: another version of viplab has started it",
			call.Command)
	}
	return h(ctx, call)
}

func (l *Lab) down(context.Context, *control.Call) (any, error) {
	l.end()
	return nil, nil
}

// change replaces the proxier.
func (l *Lab) change(ctx context.Context, call *control.Call) (any, error) {
	p, err := l.proxier(ctx, call)
	if err != nil {
		return nil, err
	}
	return nil, l.standing.Switch(context.WithoutCancel(ctx), p) // not to leave nodes without a proxier
}
