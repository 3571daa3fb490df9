// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/viplab/viplab/lab/cluster/container"
)

type role int

const (
	initContainer role = iota // or a sidecar, by its restart policy
	mainContainer
)

// runner is what a container runs: a program or a server inside viplab.
type runner interface {
	Done() <-chan struct{}
	ExitCode() int
	Signal(syscall.Signal) error
	Close() error
}

// unit is a container of a pod, through all its restarts.
type unit struct {
	pod  *Pod
	spec *corev1.Container
	role role

	startOnce sync.Once
	startedUp chan struct{} // closed when a sidecar has started
	upOnce    sync.Once
	finished  chan struct{} // closed when it will not run again
	ending    chan struct{} // closed when it shall not be started again
	endOnce   sync.Once
	deadline  time.Time // of the end

	// guarded by the pod's mu
	state, last corev1.ContainerState
	started     bool // it runs, and its startup probe has succeeded
	ready       bool
	restarts    int32
	run         runner
	holder      *container.Container // where programs run beside a server inside viplab
	command     container.Command    // how others start in it
	image       Image
	output      *output
	previous    *output
	stdin       *io.PipeWriter
}

func newUnit(p *Pod, c *corev1.Container, r role) *unit {
	u := &unit{
		pod: p, spec: c, role: r, output: newOutput(),
		startedUp: make(chan struct{}), finished: make(chan struct{}), ending: make(chan struct{}),
	}
	u.state.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	if r == mainContainer && len(p.object.Spec.InitContainers) > 0 || r == initContainer && len(p.inits) > 0 {
		u.state.Waiting.Reason = "PodInitializing"
	}
	return u
}

func (u *unit) sidecar() bool {
	return u.role == initContainer && u.spec.RestartPolicy != nil &&
		*u.spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// start starts the container for the first time.
func (u *unit) start() { u.startOnce.Do(func() { go u.loop() }) }

// forgiven is how long a container has to run for its back-off to begin anew (the kubelet's container restart policy,
// https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy). Its restarts stay counted.
const forgiven = 10 * time.Minute

// loop runs the container as often as its restart policy says.
func (u *unit) loop() {
	defer close(u.finished)
	for crashes := int32(0); ; {
		began := time.Now()
		code := u.once()
		if u.isEnding() || !u.again(code) {
			return
		}
		if time.Since(began) > forgiven {
			crashes = 0
		}
		crashes++
		u.pod.mu.Lock()
		u.restarts++
		u.pod.mu.Unlock()
		if crashes > 1 && !u.wait("CrashLoopBackOff", u.backOff(crashes-2)) {
			return
		}
	}
}

// again reports whether a container that has ended is started once more.
func (u *unit) again(code int) bool {
	if u.sidecar() {
		return true
	}
	switch u.pod.restartPolicy() {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyAlways:
		return u.role == mainContainer || code != 0
	}
	return code != 0
}

func (u *unit) backOff(n int32) time.Duration {
	base := u.pod.kubelet.config.BackOff
	return min(base<<min(n, 10), 30*base)
}

func (u *unit) isEnding() bool {
	select {
	case <-u.ending:
		return true
	case <-u.pod.ctx.Done():
		return true
	default:
		return false
	}
}

// wait waits before the next start, with a reason in the status. It reports false if the container shall end.
func (u *unit) wait(reason string, d time.Duration) bool {
	u.warn("BackOff", "Back-off restarting failed container %s in pod %s_%s(%s)", u.spec.Name, u.pod.key.Name,
		u.pod.key.Namespace, u.pod.uid)
	u.waiting(reason, fmt.Sprintf("back-off %v restarting failed container=%s pod=%s_%s(%s)", d, u.spec.Name,
		u.pod.key.Name, u.pod.key.Namespace, u.pod.uid))
	return u.pause(time.After(d))
}

func (u *unit) pause(until <-chan time.Time) bool {
	select {
	case <-until:
		return true
	case <-u.ending:
		return false
	case <-u.pod.ctx.Done():
		return false
	}
}

// waiting puts the reason why the container does not run into the status.
func (u *unit) waiting(reason, message string) {
	u.pod.mu.Lock()
	if u.state.Terminated != nil {
		u.last = u.state
	}
	u.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	u.pod.mu.Unlock()
	u.pod.report()
}

// once runs the container once and returns its exit code.
func (u *unit) once() int {
	began := metav1.Now()
	run, err := u.launch()
	if err != nil {
		if u.isEnding() {
			return 0
		}
		u.warn("Failed", "Error: %v", err)
		u.ended(began, 128, "StartError", err.Error())
		return 128
	}
	u.tell("Created", "Created container: %s", u.spec.Name)
	u.tell("Started", "Started container %s", u.spec.Name)
	u.pod.mu.Lock()
	if u.state.Terminated != nil {
		u.last = u.state
	}
	u.run, u.started, u.ready = run, u.spec.StartupProbe == nil, false
	u.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	u.ready = u.started && u.spec.ReadinessProbe == nil
	u.pod.mu.Unlock()
	ctx, cancel := context.WithCancel(u.pod.ctx)
	var probes sync.WaitGroup
	if !u.postStart(ctx) {
		u.stopRun(time.Now().Add(gracePeriod(u.pod.object)))
	} else {
		if u.spec.StartupProbe == nil {
			u.up()
		}
		u.pod.report()
		probes.Go(func() { u.probe(ctx) })
		probes.Go(func() { u.guardSpace(ctx, run) })
	}
	select {
	case <-run.Done():
	case <-u.ending:
		u.tell("Killing", "Stopping container %s", u.spec.Name)
		u.stopRun(u.deadline)
	case <-u.pod.ctx.Done():
		u.stopRun(time.Now())
	}
	cancel()
	probes.Wait()
	code := run.ExitCode()
	_ = run.Close()
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	u.ended(began, code, reason, "")
	return code
}

// up says that the container has started: the next init container may.
func (u *unit) up() {
	if u.sidecar() {
		u.upOnce.Do(func() { close(u.startedUp) })
	}
}

// ended records the end of a run.
func (u *unit) ended(began metav1.Time, code int, reason, message string) {
	u.output.end()
	u.pod.mu.Lock()
	u.run, u.started, u.ready = nil, false, false
	u.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message, StartedAt: began, FinishedAt: metav1.Now(),
		ContainerID: u.id(),
	}}
	holder, stdin := u.holder, u.stdin
	u.holder, u.stdin = nil, nil
	u.pod.mu.Unlock()
	if holder != nil {
		_ = holder.Close()
	}
	if stdin != nil {
		_ = stdin.Close()
	}
	u.pod.report()
}

func (u *unit) id() string {
	return fmt.Sprintf("viplab://%s/%s/%d", u.pod.uid, u.spec.Name, u.restarts)
}

// launch starts what the image says. It waits for what the container refers to.
func (u *unit) launch() (runner, error) {
	image, err := u.pull()
	if err != nil {
		return nil, err
	}
	for {
		revision := u.pod.kubelet.config.Store.Snapshot().Revision
		command, env, err := u.pod.command(u.spec, image)
		missing := (*configError)(nil)
		if err == nil {
			return u.launchAs(image, command, arguments(u.spec, image, env.values))
		}
		if !errors.As(err, &missing) {
			return nil, err
		}
		u.warn("Failed", "Error: %v", err)
		u.waiting("CreateContainerConfigError", err.Error())
		select {
		case <-u.pod.kubelet.config.Store.Changed(revision):
		case <-u.ending:
			return nil, err
		case <-u.pod.ctx.Done():
			return nil, err
		}
	}
}

func (u *unit) launchAs(image Image, command container.Command, args []string) (runner, error) {
	u.pod.mu.Lock()
	if u.restarts > 0 {
		u.previous, u.output = u.output, newOutput()
	}
	u.image, u.command = image, command
	out, errs := u.output.streams()
	streams := container.IO{Out: out, Err: errs, TTY: u.spec.TTY}
	if u.spec.Stdin {
		streams.In, u.stdin = io.Pipe()
	}
	u.pod.mu.Unlock()
	if image.Server != NoServer && len(u.spec.Command) == 0 {
		closer, err := u.pod.kubelet.config.Serve(u.pod.ctx, u.pod, u.spec, image.Server)
		if err != nil {
			return nil, err
		}
		return newServer(u.pod.ctx, closer), nil
	}
	command.Args = slices.Clone(args)
	files, err := u.pod.files(u.spec, image)
	if err != nil {
		return nil, err
	}
	c, err := u.pod.shared.Start(command, files, streams)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// end ends the container for good: its preStop hook, SIGTERM, and SIGKILL at the deadline.
func (u *unit) end(deadline time.Time) {
	u.endOnce.Do(func() {
		u.deadline = deadline
		close(u.ending)
	})
	u.startOnce.Do(func() { close(u.finished) }) // it never began
	<-u.finished
}

// stopRun ends the present run.
func (u *unit) stopRun(deadline time.Time) {
	u.pod.mu.Lock()
	run := u.run
	u.pod.mu.Unlock()
	if run == nil {
		return
	}
	ctx, cancel := context.WithDeadline(u.pod.ctx, deadline)
	defer cancel()
	u.preStop(ctx)
	_ = run.Signal(syscall.SIGTERM)
	select {
	case <-run.Done():
	case <-ctx.Done():
		_ = run.Signal(syscall.SIGKILL)
		<-run.Done()
	}
}

// code returns the exit code of the last run.
func (u *unit) code() int {
	u.pod.mu.Lock()
	defer u.pod.mu.Unlock()
	if u.state.Terminated == nil {
		return -1
	}
	return int(u.state.Terminated.ExitCode)
}

func (u *unit) succeededLocked() bool {
	return u.state.Terminated != nil && u.state.Terminated.ExitCode == 0
}

// release gives back what the unit holds beside its logs.
func (u *unit) release() {
	u.pod.mu.Lock()
	holder := u.holder
	u.holder = nil
	u.pod.mu.Unlock()
	if holder != nil {
		_ = holder.Close()
	}
}
