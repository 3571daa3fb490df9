// SPDX-License-Identifier: Apache-2.0

// Package live holds a lab that stays: a cluster with a proxier, its API on a socket of the machine, and the requests
// of commands such as "viplab exec".
package live

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/internal/live/registry"
	"github.com/viplab/viplab/internal/suite/engine"
	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/lab/cluster"
	"github.com/viplab/viplab/lab/cluster/api"
	"github.com/viplab/viplab/lab/cluster/kubelet"
	"github.com/viplab/viplab/lab/cluster/store"
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
	Images kubelet.Images
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
	endpoint *api.Endpoint
	proxier  Finder
	end      context.CancelFunc
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

// Finder returns the proxier that the arguments of a Switch name.
type Finder func(ctx context.Context, call *control.Call) (spec.Proxier, error)

// Run builds the lab and serves it until the context ends or a command ends it. At the end it removes the lab's folder.
func Run(ctx context.Context, s Sockets, c Config, proxier Finder) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	l := &Lab{name: c.Name, began: time.Now(), proxier: proxier, end: end}
	if err := l.start(ctx, s, c); err != nil {
		return err
	}
	listener, err := net.FileListener(s.Control)
	if err != nil {
		return err
	}
	go control.Serve(ctx, listener.(*net.UnixListener), l.handle)
	<-ctx.Done()
	// Not before the folder is gone may another lab have the name. What is left ends with the sandbox.
	return os.RemoveAll(s.path() + "/../" + c.Name)
}

// start builds the cluster, places the programs, applies the manifests and opens the API.
func (l *Lab) start(ctx context.Context, s Sockets, c Config) error {
	objects, err := decode(c.Manifests)
	if err != nil {
		return err
	}
	built, err := cluster.New(ctx, c.Topology, cluster.RunPrograms(kubelet.Builtin().With(c.Images)),
		cluster.BalanceLoads())
	if err != nil {
		return fmt.Errorf("build the lab: %w", err)
	}
	if err := built.Store().Apply(append(addons(), objects...)...); err != nil {
		return errors.Join(err, built.Close())
	}
	if l.standing, err = engine.Stand(ctx, built, engine.Options{Enforcer: c.Enforcer}, c.Proxier); err != nil {
		return err
	}
	if _, err := l.settle(ctx, nil); err != nil {
		return err
	}
	listener, err := net.FileListener(s.API)
	if err != nil {
		return err
	}
	l.api = api.New(built.Store())
	l.api.SetContainers(built.Containers())
	if l.endpoint, err = l.api.ServeOn(ctx, listener); err != nil {
		return err
	}
	go l.api.RecordScheduling(ctx)
	if err := l.publish(ctx, built); err != nil {
		return err
	}
	return os.WriteFile(s.path(registry.Kubeconfig), l.endpoint.Kubeconfig(), 0o600)
}

func decode(manifests []Manifest) ([]store.Object, error) {
	var objects []store.Object
	var errs []error
	for _, m := range manifests {
		more, err := store.Decode(m.Source, m.Text)
		objects, errs = append(objects, more...), append(errs, err)
	}
	return objects, errors.Join(errs...)
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
