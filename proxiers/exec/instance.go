// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/cluster/api"
	"github.com/viplab/viplab/lab/cluster/container"
	"github.com/viplab/viplab/lab/cluster/store"
	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/suite/spec"
)

// instance is the program on one node.
type instance struct {
	proxier *proxier
	node    spec.Node
	cluster *cluster
	argv    []string
	gate    *gate // nil: the API answers every request at once
	log     *logFile
	pod     *container.Pod // the namespaces of the program beside those of its processes
	folder  *folder        // the node's StateDir
	watches api.Watches
	changes <-chan struct{} // ticks when the node's nftables rules change; nil if that cannot be observed
	cancel  context.CancelFunc

	obeyed *store.Snapshot // the newest state to which the process is known to have converged; only Apply uses it

	mu    sync.Mutex // held while the process is replaced
	life  *process
	floor int       // an earlier process may have served the canaries up to this number
	ready bool      // the process has converged at least once
	half  time.Time // when a canary was first answered in some families alone; see halfReadyFor
}

// open acquires everything that the program needs.
func (i *instance) open(ctx context.Context) (err error) {
	if i.log, err = newLogFile(filepath.Join(i.node.StateDir, "log")); err != nil {
		return spec.HarnessErrorf("%s: %w", i.node.Name, err)
	}
	if i.folder, err = openFolder(i.node.StateDir, i.proxier.command.Limits.orDefault().Files); err != nil {
		return spec.HarnessErrorf("%s: %w", i.node.Name, err)
	}
	if i.pod, err = container.NewPod(i.node.Host.NS, i.node.Name); err != nil {
		return spec.HarnessErrorf("%w", err)
	}
	if i.cluster, err = join(i.node); err != nil {
		return err
	}
	ctx, i.cancel = context.WithCancel(context.WithoutCancel(ctx))
	// API servers listen on the loopback device, so their traffic never appears on the lab's networks.
	var handler http.Handler = i.cluster.api
	if i.node.EndpointsGate != nil {
		i.gate = newGate(i.cluster.api, i.node.EndpointsGate)
		handler = i.gate
	}
	endpoint, err := i.cluster.api.ServeWithHandler(ctx, i.node.Host.NS, "127.0.0.1:0", i.watches.Handler(handler))
	if err != nil {
		return spec.HarnessErrorf("%s: serve the Kubernetes API: %w", i.node.Name, err)
	}
	if err := os.WriteFile(i.kubeconfig(), endpoint.Kubeconfig(), 0o600); err != nil {
		return spec.HarnessErrorf("%s: %w", i.node.Name, err)
	}
	if i.changes, err = observe.RulesetChanges(ctx, i.node.Host.NS); err != nil {
		i.node.Log.Debug("ruleset changes cannot be seen, so canaries are asked by the clock", "reason", err)
	}
	return nil
}

// close releases what open acquired, even if open failed halfway.
func (i *instance) close() error {
	var errs []error
	if i.cancel != nil {
		i.cancel()
	}
	if i.cluster != nil {
		errs = append(errs, i.cluster.leave())
	}
	if i.pod != nil {
		errs = append(errs, i.pod.Close())
	}
	if i.folder != nil {
		errs = append(errs, i.folder.close())
	}
	if i.log != nil {
		errs = append(errs, i.log.close())
	}
	return errors.Join(errs...)
}

// launch starts the program as configured.
func (i *instance) launch() (*process, error) {
	i.floor = i.cluster.canaries.newest()
	return i.run(i.argv)
}

// run starts a command as a process of the node.
func (i *instance) run(argv []string) (*process, error) {
	p, err := start(i.pod, argv, i.environment(), i.node.StateDir, i.log, i.proxier.command)
	if err == nil {
		i.node.Log.Info("started", "pid", p.container.Pid(), "command", strings.Join(argv, " "))
	}
	return p, err
}

// current returns the current process, and the newest canary that an earlier process may have served.
func (i *instance) current() (p *process, floor int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.life, i.floor
}

// Apply waits until packets show that the process serves the state. The process gets the state through the API.
func (i *instance) Apply(ctx context.Context, want *store.Snapshot) error {
	if p, _ := i.current(); p.ended() {
		return i.dead(p)
	}
	if i.proxier.command.Unconfirmed {
		return nil
	}
	since := i.cluster.canaries.unchangedSince(want)
	if i.obeyed != nil && since <= i.obeyed.Revision {
		return nil
	}
	if err := i.confirm(ctx, want, since); err != nil {
		return err
	}
	i.obeyed = want
	return nil
}

// BreakWatches implements spec.Instance.
func (i *instance) BreakWatches() (resume func()) {
	answer := i.watches.Break()
	return func() { answer(i.node.Store.Snapshot().Revision) }
}

// dead returns the error for a process that has ended.
func (i *instance) dead(p *process) error {
	return &spec.EndedError{
		Err: fmt.Errorf("%s: %s %s; %s", i.node.Name, i.proxier.Name(), p.end, i.log.lastLines()),
	}
}

// Dump writes the state of the process, the Events of the cluster, in which such programs report problems, and all
// rules of the node, since any of them may be the program's.
func (i *instance) Dump(ctx context.Context, w io.Writer) error {
	p, _ := i.current()
	status := fmt.Sprintf("process %d runs", p.container.Pid())
	if p.ended() {
		status = "the process " + p.end
	}
	var events strings.Builder
	for _, e := range i.cluster.api.Events() {
		fmt.Fprintf(&events, "# Event %s\n", e)
	}
	if _, err := fmt.Fprintf(w, "# %s\n# %s\n%s", strings.Join(i.argv, " "), status, &events); err != nil {
		return err
	}
	return i.dumpRules(ctx, w)
}

// WriteLog implements spec.Logged.
func (i *instance) WriteLog(w io.Writer) error {
	_, err := io.WriteString(w, i.log.tail(math.MaxInt64))
	return err
}

// Stop ends the process with SIGTERM. It removes nothing from the kernel: kube-proxy leaves its rules on purpose.
func (i *instance) Stop(ctx context.Context) error {
	p, _ := i.current()
	err := p.stop(ctx)
	if err != nil {
		err = fmt.Errorf("%s: %w", i.proxier.Name(), err)
	}
	return errors.Join(err, i.close())
}

// Kill kills the process and its children, and releases what the lab holds for it.
func (i *instance) Kill(context.Context) error {
	p, _ := i.current()
	err := p.signal(unix.SIGKILL)
	if err == nil {
		<-p.done
	}
	return errors.Join(err, i.close())
}

// Cleanup ends the process and runs the command that removes what it left behind.
func (i *instance) Cleanup(ctx context.Context) error {
	p, _ := i.current()
	if err := p.stop(ctx); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", i.proxier.Name(), err), i.close())
	}
	return errors.Join(i.clean(ctx), i.close())
}

func (i *instance) clean(ctx context.Context) error {
	templates, err := parseWords(i.proxier.command.Cleanup)
	if err != nil || len(templates) == 0 {
		return errors.Join(err, fmt.Errorf("%s: there is no command to clean up", i.proxier.Name()))
	}
	argv, err := templates.fill(valuesOf(i.node, i.kubeconfig()))
	if err != nil {
		return err
	}
	cleaning, err := i.run(argv)
	if err != nil {
		return fmt.Errorf("%s: %w", i.proxier.Name(), err)
	}
	select {
	case <-cleaning.done:
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), cleaning.signal(unix.SIGKILL))
	}
	if !cleaning.succeeded {
		return fmt.Errorf("%s: %s: it %s; %s", i.proxier.Name(), strings.Join(argv, " "), cleaning.end,
			i.log.lastLines())
	}
	return nil
}
