// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/viplab/viplab/lab/cluster/access"
	"github.com/viplab/viplab/lab/cluster/container"
	"github.com/viplab/viplab/lab/cluster/store"
)

var _ access.Containers = (*Kubelet)(nil)

// find returns a pod and its container; an empty name means the pod's default one.
func (k *Kubelet) find(key store.Key, name string) (*Pod, *unit, error) {
	k.mu.Lock()
	p := k.pods[key]
	k.mu.Unlock()
	if p == nil {
		return nil, nil, apierrors.NewNotFound(corev1.Resource("pods"), key.String())
	}
	if name == "" {
		name = access.DefaultContainer(p.object)
	}
	for _, u := range p.units() {
		if u.spec.Name == name {
			return p, u, nil
		}
	}
	return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, key))
}

// Exec implements access.Containers.
func (k *Kubelet) Exec(ctx context.Context, pod store.Key, name string, command []string, s access.Streams) error {
	_, u, err := k.find(pod, name)
	if err != nil {
		return err
	}
	p, err := u.exec(command, container.IO{In: s.In, Out: s.Out, Err: s.Err, TTY: s.TTY})
	if start := (*container.StartError)(nil); errors.As(err, &start) {
		if s.Err != nil {
			_, _ = fmt.Fprintln(s.Err, start.Detail)
		} else if s.Out != nil {
			_, _ = fmt.Fprintln(s.Out, start.Detail)
		}
		return &access.ExitError{Code: 126}
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	defer stop()
	follow(s.Resize, p.Done(), p.Resize)
	if code := p.ExitCode(); code != 0 {
		return &access.ExitError{Code: code}
	}
	return nil
}

// follow passes the sizes of a terminal on, until done is closed.
func follow(sizes <-chan access.TerminalSize, done <-chan struct{}, resize func(width, height uint16) error) {
	for sizes != nil {
		select {
		case s, ok := <-sizes:
			if !ok {
				sizes = nil
				continue
			}
			_ = resize(s.Width, s.Height) // a terminal that is gone has no size
		case <-done:
			return
		}
	}
	<-done
}

// Attach implements access.Containers.
func (k *Kubelet) Attach(ctx context.Context, pod store.Key, name string, s access.Streams) error {
	p, u, err := k.find(pod, name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	run, output := u.run, u.output
	p.mu.Unlock()
	if run == nil {
		return fmt.Errorf("container %s of pod %s does not run", u.spec.Name, pod)
	}
	defer output.attach(s.Out, s.Err)()
	go u.input(s.In)
	resize := func(width, height uint16) error { return nil }
	if c, ok := run.(*container.Container); ok {
		resize = c.Resize
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-run.Done():
		case <-ctx.Done():
		}
	}()
	follow(s.Resize, ended, resize)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if code := run.ExitCode(); code != 0 {
		return &access.ExitError{Code: code}
	}
	return nil
}

// Logs implements access.Containers.
func (k *Kubelet) Logs(ctx context.Context, pod store.Key, name string, o *corev1.PodLogOptions, w io.Writer) error {
	p, u, err := k.find(pod, name)
	if err != nil {
		return err
	}
	p.mu.Lock()
	output, waiting := u.output, u.state.Waiting
	if o.Previous {
		output = u.previous
	}
	never := waiting != nil && u.last == (corev1.ContainerState{})
	p.mu.Unlock()
	switch {
	case output == nil:
		return apierrors.NewBadRequest(fmt.Sprintf("previous terminated container %q in pod %q not found", u.spec.Name,
			pod.Name))
	case never:
		return apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", u.spec.Name, pod.Name,
			waiting.Reason))
	}
	return output.print(ctx, o, w)
}

// Dial implements access.Containers. Programs may listen on the loopback address or on the pod's.
func (k *Kubelet) Dial(ctx context.Context, pod store.Key, port uint16) (net.Conn, error) {
	k.mu.Lock()
	p := k.pods[pod]
	k.mu.Unlock()
	if p == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.String())
	}
	var errs []error
	for _, a := range append([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, p.Addrs...) {
		conn, err := p.NS.Dial(ctx, "tcp", netip.AddrPort{}, netip.AddrPortFrom(a, port))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
