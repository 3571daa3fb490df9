// SPDX-License-Identifier: Apache-2.0

// Package netns creates network namespaces and opens sockets, files and processes in them.
//
// A namespace here is only a file descriptor: no name under /run/netns, no mount, no process. The kernel deletes it
// after its last descriptor, socket and process, so a harness that dies at any moment leaves nothing behind.
//
// A socket stays in the namespace it was opened in, whichever thread uses it. So the rule is "open inside, use
// outside": Dial, Listen and Socket enter the namespace only to open. Do not start goroutines inside Do: they leave it.
package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// NS is a network namespace that this process holds open. Its methods may be called from any goroutine.
type NS struct {
	name   string
	handle netns.NsHandle
	route  *netlink.Handle
	wire   wire
}

// New makes an empty namespace and writes the settings before any device can act on the defaults.
func New(name string, settings ...Setting) (*NS, error) {
	ns := &NS{name: name, handle: netns.None(), wire: wire{fd: -1}}
	err := away(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			if err == unix.EPERM {
				err = fmt.Errorf("%w (root may, and so may any user in a sandbox: see lab/sandbox)", err)
			}
			return fmt.Errorf("create network namespace: %w", err)
		}
		return ns.open(settings)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, errors.Join(err, ns.release()))
	}
	return ns, nil
}

// open opens the descriptor of the namespace that the thread is in, and two rtnetlink sockets there.
func (n *NS) open(settings []Setting) error {
	fd, err := unix.Open(ownNamespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	n.handle = netns.NsHandle(fd)
	if n.route, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	if err := n.wire.open(); err != nil {
		return fmt.Errorf("open netlink socket: %w", err)
	}
	return write(settings)
}

// Name returns the name of the namespace in messages.
func (n *NS) Name() string { return n.name }

// Fd returns the descriptor of the namespace, valid until Close, for libraries that open their own sockets.
func (n *NS) Fd() int { return int(n.handle) }

// List calls a function that lists kernel objects such as links, and retries while a concurrent change interrupts it
// (netlink.ErrDumpInterrupted).
func List[T any](list func() ([]T, error)) ([]T, error) {
	for {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}

// Netlink returns the rtnetlink handle whose socket lives in the namespace.
func (n *NS) Netlink() *netlink.Handle { return n.route }

// Close releases the namespace. The kernel frees it, with every link in it, once no socket or process of it is left.
func (n *NS) Close() error {
	if err := n.release(); err != nil {
		return fmt.Errorf("%s: close network namespace: %w", n.name, err)
	}
	return nil
}

func (n *NS) release() error {
	if n.route != nil {
		n.route.Close()
	}
	err := n.wire.close()
	if n.handle.IsOpen() {
		err = errors.Join(err, n.handle.Close())
	}
	return err
}

// Do runs f on a thread that is in the namespace. Only opening belongs in f: goroutines that it starts run elsewhere.
func (n *NS) Do(f func() error) error {
	if n == nil {
		return errors.New("there is no network namespace: the NS is nil")
	}
	return away(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("%s: enter network namespace: %w", n.name, err)
		}
		return f()
	})
}

// Dial connects to a literal address. If from is not valid, the kernel chooses the source address and port; if its port
// is 0, the kernel chooses the port.
func (n *NS) Dial(ctx context.Context, network string, from netip.AddrPort, to netip.AddrPort) (net.Conn, error) {
	d := net.Dialer{}
	if from.IsValid() {
		if strings.HasPrefix(network, "udp") {
			d.LocalAddr = net.UDPAddrFromAddrPort(from)
		} else {
			d.LocalAddr = net.TCPAddrFromAddrPort(from)
		}
	}
	return openIn(n, func() (net.Conn, error) { return d.DialContext(ctx, network, to.String()) })
}

var listen net.ListenConfig

// openIn opens something in a namespace.
func openIn[T any](n *NS, f func() (T, error)) (opened T, err error) {
	err = n.Do(func() (err error) {
		opened, err = f()
		return err
	})
	return opened, err
}

// Listen opens a TCP listener in the namespace. Once its Close returns, the kernel accepts no more connections.
func (n *NS) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := openIn(n, func() (net.Listener, error) { return listen.Listen(ctx, network, address) })
	if err != nil {
		return nil, err
	}
	return listener{l.(*net.TCPListener)}, nil
}

// ListenPacket opens a datagram socket in the namespace.
func (n *NS) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	return openIn(n, func() (net.PacketConn, error) { return listen.ListenPacket(ctx, network, address) })
}

// Socket opens a socket in the namespace and returns its descriptor, which is close-on-exec. The caller closes it.
func (n *NS) Socket(domain, typ, proto int) (int, error) {
	fd, err := openIn(n, func() (int, error) { return unix.Socket(domain, typ|unix.SOCK_CLOEXEC, proto) })
	if err != nil {
		return -1, fmt.Errorf("%s: socket: %w", n.name, err)
	}
	return fd, nil
}

// Start starts a command in the namespace. The sandbox's pid namespace ends it when the harness ends.
func (n *NS) Start(cmd *exec.Cmd) error { return n.Do(cmd.Start) }

// Run runs a command in the namespace and waits until it exits.
func (n *NS) Run(cmd *exec.Cmd) error {
	if err := n.Start(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

// ProcNet returns the content of a file of /proc/net, such as "snmp", as the namespace sees it. It returns "" if the
// kernel has no such file, as without the module that makes it.
func (n *NS) ProcNet(name string) (string, error) {
	var text []byte
	err := n.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/" + name)
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", n.name, err)
	}
	return string(text), nil
}
