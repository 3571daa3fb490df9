// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// The floor is the least that a network of this shape costs: messages encoded beforehand, one system call for each
// namespace, no names, no checks, no waiting. What a lab takes longer than this is the price of everything else. It has
// an encoder of its own, so that it does not get faster or slower with the lab's.
//
// It builds: a switch; nodes with a wire to the switch, a bridge, forwarding, and a route to the pods of every other
// node; pods with a wire to their node's bridge, an address and a default route. IPv4 only.
type floor struct {
	nodes, pods int

	mu  sync.Mutex
	fds []int
}

const (
	floorNIC    = 100
	floorBridge = 101
	floorPort   = 1000
)

// room is one namespace: its netlink socket, which keeps it alive, and its descriptor, for wires that lead there.
type room struct{ socket, fd int }

// The threads of the floor move for good. The main thread is not for them: /proc/self shows it.
func init() { runtime.LockOSThread() }

// buildFloor builds the network with so many threads.
func buildFloor(s size, threads int) (tearDown func() error, err error) {
	f := &floor{nodes: s.nodes, pods: s.pods}
	var lan room
	err = onThreads(1, func() (err error) { lan, err = f.hub(); return err })
	if err == nil {
		work := make(chan int, f.nodes)
		for n := range f.nodes {
			work <- n
		}
		close(work)
		err = onThreads(threads, func() error {
			for n := range work {
				if err := f.node(n, lan); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = connect(lan, f.nodes)
	}
	return func() error {
		for _, fd := range f.fds {
			unix.Close(fd)
		}
		return nil
	}, err
}

// onThreads calls a function on some threads that end with it.
func onThreads(n int, do func() error) error {
	var threads errgroup.Group
	for range n {
		threads.Go(func() error {
			runtime.LockOSThread()
			return do()
		})
	}
	return threads.Wait()
}

func (f *floor) hub() (room, error) {
	r, err := f.newRoom()
	if err != nil {
		return r, err
	}
	m := message{}
	m.up(1)
	m.bridge(floorBridge)
	return r, m.send(r.socket)
}

// connect puts the ends of wires into the bridge of a room.
func connect(r room, wires int) error {
	if wires == 0 {
		return nil
	}
	m := message{}
	for i := range wires {
		m.master(floorPort+i, floorBridge)
	}
	return m.send(r.socket)
}

func (f *floor) node(n int, lan room) error {
	r, err := f.newRoom()
	if err != nil {
		return err
	}
	m := message{}
	m.up(1)
	m.veth(floorNIC, lan.fd, floorPort+n)
	m.bridge(floorBridge)
	m.forwarding(floorNIC)
	m.forwarding(floorBridge)
	m.address(floorNIC, [4]byte{192, 168, 7, byte(10 + n)}, 24)
	m.address(floorBridge, [4]byte{10, 244, byte(n), 1}, 24)
	for peer := range f.nodes {
		if peer != n {
			m.route([4]byte{10, 244, byte(peer), 0}, 24, [4]byte{192, 168, 7, byte(10 + peer)})
		}
	}
	if err := m.send(r.socket); err != nil {
		return err
	}
	for p := range f.pods {
		pod, err := f.newRoom()
		if err != nil {
			return err
		}
		m := message{}
		m.up(1)
		m.veth(floorNIC, r.fd, floorPort+p)
		m.address(floorNIC, [4]byte{10, 244, byte(n), byte(2 + p)}, 24)
		m.route([4]byte{}, 0, [4]byte{10, 244, byte(n), 1})
		if err := m.send(pod.socket); err != nil {
			return err
		}
	}
	return connect(r, f.pods)
}

// newRoom moves the thread into a new namespace.
func (f *floor) newRoom() (room, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return room{}, fmt.Errorf("unshare: %w", err)
	}
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return room{}, fmt.Errorf("socket: %w", err)
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fds = append(f.fds, socket, fd)
	return room{socket, fd}, err
}

// message is a request of several netlink messages.
type message struct {
	b    []byte
	last int
}

var native = binary.NativeEndian

// request adds a message. The body adds what follows its header.
func (m *message) request(typ, flags uint16, body func()) {
	m.last = len(m.b)
	m.b = native.AppendUint32(m.b, 0)
	m.b = native.AppendUint16(m.b, typ)
	m.b = native.AppendUint16(m.b, unix.NLM_F_REQUEST|flags)
	m.b = append(m.b, 0, 0, 0, 0, 0, 0, 0, 0)
	body()
	native.PutUint32(m.b[m.last:], uint32(len(m.b)-m.last))
}

const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL

func (m *message) attr(typ uint16, value []byte) {
	m.nest(typ, func() { m.b = append(m.b, value...) })
	for len(m.b)%4 != 0 {
		m.b = append(m.b, 0)
	}
}

func (m *message) nest(typ uint16, body func()) {
	at := len(m.b)
	m.b = append(m.b, 0, 0, byte(typ), byte(typ>>8))
	body()
	native.PutUint16(m.b[at:], uint16(len(m.b)-at))
}

func (m *message) number(typ uint16, value int) { m.attr(typ, native.AppendUint32(nil, uint32(value))) }

// device adds the fixed part of a message about a device.
func (m *message) device(index, flags int) {
	m.b = append(m.b, 0, 0, 0, 0)
	m.b = native.AppendUint32(m.b, uint32(index))
	m.b = native.AppendUint32(m.b, uint32(flags))
	m.b = native.AppendUint32(m.b, uint32(flags))
}

func (m *message) up(index int) {
	m.request(unix.RTM_NEWLINK, 0, func() { m.device(index, unix.IFF_UP) })
}

func (m *message) master(index, bridge int) {
	m.request(unix.RTM_NEWLINK, 0, func() {
		m.device(index, unix.IFF_UP)
		m.number(unix.IFLA_MASTER, bridge)
	})
}

func (m *message) bridge(index int) {
	m.request(unix.RTM_NEWLINK, create, func() {
		m.device(index, unix.IFF_UP)
		m.attr(unix.IFLA_IFNAME, []byte("br0\x00"))
		m.nest(unix.IFLA_LINKINFO, func() { m.attr(unix.IFLA_INFO_KIND, []byte("bridge")) })
	})
}

func (m *message) veth(index, peerNS, peerIndex int) {
	const vethInfoPeer = 1
	end := func(index, flags int, name string) {
		m.device(index, flags)
		m.attr(unix.IFLA_IFNAME, []byte(name+"\x00"))
		m.number(unix.IFLA_NUM_TX_QUEUES, 1)
		m.number(unix.IFLA_NUM_RX_QUEUES, 1)
	}
	m.request(unix.RTM_NEWLINK, create, func() {
		end(index, unix.IFF_UP, "eth0")
		m.nest(unix.IFLA_LINKINFO, func() {
			m.attr(unix.IFLA_INFO_KIND, []byte("veth"))
			m.nest(unix.IFLA_INFO_DATA, func() {
				m.nest(vethInfoPeer, func() {
					end(peerIndex, 0, fmt.Sprintf("port%d", peerIndex))
					m.number(unix.IFLA_NET_NS_FD, peerNS)
				})
			})
		})
	})
}

func (m *message) forwarding(index int) {
	m.request(unix.RTM_NEWLINK, 0, func() {
		m.device(index, 0)
		m.nest(unix.IFLA_AF_SPEC, func() {
			m.nest(unix.AF_INET, func() { m.nest(1, func() { m.number(1, 1) }) }) // IFLA_INET_CONF, IPV4_DEVCONF_FORWARDING
		})
	})
}

func (m *message) address(index int, a [4]byte, bits byte) {
	m.request(unix.RTM_NEWADDR, create, func() {
		m.b = append(m.b, unix.AF_INET, bits, 0, 0)
		m.b = native.AppendUint32(m.b, uint32(index))
		m.attr(unix.IFA_LOCAL, a[:])
	})
}

func (m *message) route(to [4]byte, bits byte, via [4]byte) {
	m.request(unix.RTM_NEWROUTE, create, func() {
		m.b = append(m.b, unix.AF_INET, bits, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE,
			unix.RTN_UNICAST, 0, 0, 0, 0)
		m.attr(unix.RTA_DST, to[:])
		m.attr(unix.RTA_GATEWAY, via[:])
	})
}

// send sends the messages and checks that all were obeyed: only the last asks for an answer, so an answer to anything
// else is a refusal.
func (m *message) send(socket int) error {
	native.PutUint16(m.b[m.last+6:], native.Uint16(m.b[m.last+6:])|unix.NLM_F_ACK)
	if _, err := unix.Write(socket, m.b); err != nil {
		return err
	}
	var answer [4096]byte
	n, err := unix.Read(socket, answer[:])
	if err != nil {
		return err
	}
	if n < 20 {
		return unix.EBADMSG
	}
	if code := -int32(native.Uint32(answer[16:])); code != 0 {
		return unix.Errno(code)
	}
	return nil
}
