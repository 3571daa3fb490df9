// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"

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
	fds         []int
}

const (
	floorNIC    = 100
	floorBridge = 101
	floorPort   = 1000
)

// room is one namespace: its netlink socket, which keeps it alive, and its descriptor, for wires that lead there.
type room struct{ socket, fd int }

// build builds the network with so many threads.
func (f *floor) build(threads int) error {
	f.fds = make([]int, 0, 2*(1+f.nodes*(1+f.pods)))
	var mu sync.Mutex
	keep := func(r room) {
		mu.Lock()
		defer mu.Unlock()
		f.fds = append(f.fds, r.socket, r.fd)
	}
	work := make(chan int)
	ready := make(chan room, threads)
	done := make(chan error, threads)
	for i := range threads {
		go func() { done <- f.worker(i == 0, ready, threads, work, keep) }()
	}
	for n := range f.nodes {
		work <- n
	}
	close(work)
	var failed error
	for range threads {
		if err := <-done; err != nil && failed == nil {
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	ports := message{}
	for n := range f.nodes {
		ports.master(floorPort+n, floorBridge)
	}
	return ports.send(f.fds[0])
}

// The workers move their threads for good. The main thread is not for them: /proc/self shows it.
func init() { runtime.LockOSThread() }

// worker builds nodes on a thread that ends with it. The first one builds the switch for all.
func (f *floor) worker(first bool, ready chan room, threads int, work <-chan int, keep func(room)) error {
	runtime.LockOSThread()
	if first {
		r, err := newRoom()
		if err != nil {
			return err
		}
		keep(r)
		m := message{}
		m.up(1)
		m.bridge(floorBridge)
		if err := m.send(r.socket); err != nil {
			return err
		}
		for range threads {
			ready <- r
		}
	}
	lan := <-ready
	for n := range work {
		if err := f.node(n, lan, keep); err != nil {
			return err
		}
	}
	return nil
}

func (f *floor) node(n int, lan room, keep func(room)) error {
	r, err := newRoom()
	if err != nil {
		return err
	}
	keep(r)
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
	ports := message{}
	for p := range f.pods {
		pod, err := newRoom()
		if err != nil {
			return err
		}
		keep(pod)
		m := message{}
		m.up(1)
		m.veth(floorNIC, r.fd, floorPort+p)
		m.address(floorNIC, [4]byte{10, 244, byte(n), byte(2 + p)}, 24)
		m.route([4]byte{}, 0, [4]byte{10, 244, byte(n), 1})
		if err := m.send(pod.socket); err != nil {
			return err
		}
		ports.master(floorPort+p, floorBridge)
	}
	if f.pods == 0 {
		return nil
	}
	return ports.send(r.socket)
}

func (f *floor) close() {
	for _, fd := range f.fds {
		unix.Close(fd)
	}
}

// newRoom moves the thread into a new namespace.
func newRoom() (room, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return room{}, fmt.Errorf("unshare: %w", err)
	}
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return room{}, fmt.Errorf("socket: %w", err)
	}
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return room{socket, fd}, err
}

// message is a request of several netlink messages.
type message struct {
	b    []byte
	last int
}

var native = binary.NativeEndian

func (m *message) begin(typ, flags uint16) {
	m.last = len(m.b)
	m.b = native.AppendUint32(m.b, 0)
	m.b = native.AppendUint16(m.b, typ)
	m.b = native.AppendUint16(m.b, unix.NLM_F_REQUEST|flags)
	m.b = append(m.b, 0, 0, 0, 0, 0, 0, 0, 0)
}

func (m *message) end() { native.PutUint32(m.b[m.last:], uint32(len(m.b)-m.last)) }

func (m *message) attr(typ uint16, value []byte) {
	m.b = native.AppendUint16(m.b, uint16(4+len(value)))
	m.b = native.AppendUint16(m.b, typ)
	m.b = append(m.b, value...)
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

func (m *message) link(index, flags int) {
	m.b = append(m.b, 0, 0, 0, 0)
	m.b = native.AppendUint32(m.b, uint32(index))
	m.b = native.AppendUint32(m.b, uint32(flags))
	m.b = native.AppendUint32(m.b, uint32(flags))
}

func (m *message) up(index int) {
	m.begin(unix.RTM_NEWLINK, 0)
	m.link(index, unix.IFF_UP)
	m.end()
}

func (m *message) master(index, bridge int) {
	m.begin(unix.RTM_NEWLINK, 0)
	m.link(index, unix.IFF_UP)
	m.number(unix.IFLA_MASTER, bridge)
	m.end()
}

func (m *message) bridge(index int) {
	m.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m.link(index, unix.IFF_UP)
	m.attr(unix.IFLA_IFNAME, []byte("br0\x00"))
	m.nest(unix.IFLA_LINKINFO, func() { m.attr(unix.IFLA_INFO_KIND, []byte("bridge")) })
	m.end()
}

func (m *message) veth(index, peerNS, peerIndex int) {
	const vethInfoPeer = 1
	m.begin(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m.link(index, unix.IFF_UP)
	end := func(name string) {
		m.attr(unix.IFLA_IFNAME, []byte(name+"\x00"))
		m.number(unix.IFLA_NUM_TX_QUEUES, 1)
		m.number(unix.IFLA_NUM_RX_QUEUES, 1)
	}
	end("eth0")
	m.nest(unix.IFLA_LINKINFO, func() {
		m.attr(unix.IFLA_INFO_KIND, []byte("veth"))
		m.nest(unix.IFLA_INFO_DATA, func() {
			m.nest(vethInfoPeer, func() {
				m.link(peerIndex, 0)
				end(fmt.Sprintf("port%d", peerIndex))
				m.number(unix.IFLA_NET_NS_FD, peerNS)
			})
		})
	})
	m.end()
}

func (m *message) forwarding(index int) {
	m.begin(unix.RTM_NEWLINK, 0)
	m.link(index, 0)
	m.nest(unix.IFLA_AF_SPEC, func() {
		m.nest(unix.AF_INET, func() { m.nest(1, func() { m.number(1, 1) }) }) // IFLA_INET_CONF, IPV4_DEVCONF_FORWARDING
	})
	m.end()
}

func (m *message) address(index int, a [4]byte, bits byte) {
	m.begin(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m.b = append(m.b, unix.AF_INET, bits, 0, 0)
	m.b = native.AppendUint32(m.b, uint32(index))
	m.attr(unix.IFA_LOCAL, a[:])
	m.end()
}

func (m *message) route(to [4]byte, bits byte, via [4]byte) {
	m.begin(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	m.b = append(m.b, unix.AF_INET, bits, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE,
		unix.RTN_UNICAST, 0, 0, 0, 0)
	m.attr(unix.RTA_DST, to[:])
	m.attr(unix.RTA_GATEWAY, via[:])
	m.end()
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
