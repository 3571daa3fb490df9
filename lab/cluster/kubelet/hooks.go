// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/viplab/viplab/lab/cluster/container"
)

// postStart runs the hook of that name and reports whether the container may run.
func (u *unit) postStart(ctx context.Context) bool {
	if u.spec.Lifecycle == nil || u.spec.Lifecycle.PostStart == nil {
		return true
	}
	err := u.hook(ctx, u.spec.Lifecycle.PostStart)
	if err != nil {
		u.warn("FailedPostStartHook", "PostStartHook failed: %v", err)
	}
	return err == nil
}

// preStop runs the hook of that name. The container ends, even if the hook fails.
func (u *unit) preStop(ctx context.Context) {
	if u.spec.Lifecycle != nil && u.spec.Lifecycle.PreStop != nil {
		if err := u.hook(ctx, u.spec.Lifecycle.PreStop); err != nil {
			u.warn("FailedPreStopHook", "PreStopHook failed: %v", err)
		}
	}
}

func (u *unit) hook(ctx context.Context, h *corev1.LifecycleHandler) error {
	switch {
	case h.Exec != nil:
		return u.check(ctx, h.Exec.Command)
	case h.HTTPGet != nil:
		return u.get(ctx, h.HTTPGet)
	case h.Sleep != nil:
		select {
		case <-time.After(time.Duration(h.Sleep.Seconds) * time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// check runs a program in the container and returns an error unless its exit code is 0.
func (u *unit) check(ctx context.Context, command []string) error {
	p, err := u.exec(command, container.IO{})
	if err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		_ = p.Signal(syscall.SIGKILL)
		<-p.Done()
		return ctx.Err()
	}
	if code := p.ExitCode(); code != 0 {
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

// exec starts a program in the container.
func (u *unit) exec(command []string, streams container.IO) (*container.Process, error) {
	in, how, err := u.inside()
	if err != nil {
		return nil, err
	}
	how.Args = command
	if streams.TTY {
		how.Env = append(how.Env[:len(how.Env):len(how.Env)], "TERM=xterm")
	}
	return in.Exec(how, streams)
}

// inside returns the container's namespaces and how programs start in them. A server inside viplab has no files, so
// programs beside it see those of this machine.
func (u *unit) inside() (*container.Container, container.Command, error) {
	u.pod.mu.Lock()
	defer u.pod.mu.Unlock()
	switch run := u.run.(type) {
	case *container.Container:
		return run, u.command, nil
	case nil:
		return nil, container.Command{}, fmt.Errorf("container %s of pod %s does not run", u.spec.Name, u.pod.key)
	}
	if u.holder == nil {
		hold := u.command
		hold.Args, hold.Dir, hold.User = []string{"sleep", "infinity"}, "/", 0
		files, err := u.pod.files(u.spec, u.image)
		if err != nil {
			return nil, container.Command{}, err
		}
		c, err := u.pod.shared.Start(hold, files, container.IO{})
		if err != nil {
			return nil, container.Command{}, err
		}
		u.holder = c
	}
	return u.holder, u.command, nil
}

// input sends what a reader yields to the standard input of the container, if it has one, until ctx ends.
func (u *unit) input(from io.Reader) {
	u.pod.mu.Lock()
	to := u.stdin
	u.pod.mu.Unlock()
	if to == nil || from == nil {
		return
	}
	_, _ = io.Copy(to, from)
	if u.spec.StdinOnce {
		_ = to.Close()
	}
}
