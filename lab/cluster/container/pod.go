// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// Pod is what the containers of a pod share: the network, the host name and System V IPC.
type Pod struct {
	net      *netns.NS
	uts, ipc int // descriptors of namespaces
}

// NewPod makes the namespaces of a pod beside its network namespace.
func NewPod(ns *netns.NS, hostname string) (*Pod, error) {
	p := &Pod{net: ns, uts: -1, ipc: -1}
	err := netns.OnOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWUTS | unix.CLONE_NEWIPC); err != nil {
			return fmt.Errorf("create uts and ipc namespaces: %w", err)
		}
		if err := unix.Sethostname([]byte(hostname)); err != nil {
			return fmt.Errorf("set the host name %q: %w", hostname, err)
		}
		if p.uts, err = openNamespace("/proc/thread-self/ns/uts"); err != nil {
			return err
		}
		p.ipc, err = openNamespace("/proc/thread-self/ns/ipc")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ns.Name(), errors.Join(err, p.Close()))
	}
	return p, nil
}

func openNamespace(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", path, err)
	}
	return fd, nil
}

// Close releases the namespaces. They last until the pod's containers have ended.
func (p *Pod) Close() error {
	var errs []error
	for _, fd := range []*int{&p.uts, &p.ipc} {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
			*fd = -1
		}
	}
	return errors.Join(errs...)
}

// enter moves the calling thread to the pod's namespaces.
func (p *Pod) enter() error {
	for _, ns := range []struct{ fd, kind int }{
		{p.net.Fd(), unix.CLONE_NEWNET}, {p.uts, unix.CLONE_NEWUTS}, {p.ipc, unix.CLONE_NEWIPC},
	} {
		if err := unix.Setns(ns.fd, ns.kind); err != nil {
			return fmt.Errorf("%s: enter the namespaces of the pod: %w", p.net.Name(), err)
		}
	}
	return nil
}
