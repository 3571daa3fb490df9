// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// captureBuffer is the receive buffer of a capture, for what comes while this process gets no processor: some ten
// thousand small packets. Memory is taken as packets come.
const captureBuffer = 64 << 20 // bytes

// Frame is a packet at a device, as AF_PACKET shows it: before netfilter's prerouting on the way in, after postrouting
// on the way out.
type Frame struct {
	// Device is the name of the device, "if7" for one that was gone before its name was asked for.
	Device string
	// Direction is In or Out; Other is a packet for somebody else's link address.
	Direction Direction
	// At is the kernel's time stamp.
	At time.Time
	// Ethernet tells whether Data begins with an Ethernet header; on devices like tunl0 it begins with the IP header.
	Ethernet bool
	// ChecksumPending tells that the transport checksum has not been computed yet, because the packet has not left the
	// machine: veth leaves that to a network card that never comes (see DisableOffloads). For the same reason a frame
	// can be longer than the MTU.
	ChecksumPending bool
	// Data is the packet, without a VLAN tag.
	Data []byte
}

// Direction says which way a frame went.
type Direction uint8

// The directions.
const (
	In Direction = iota
	Out
	Other
)

func (d Direction) String() string { return [...]string{"in", "out", "other"}[min(d, Other)] }

// Capture records the packets at the devices of a namespace.
type Capture struct {
	ns    *netns.NS
	file  *os.File      // for the poller
	ended chan struct{} // closed when nobody reads any more

	mu     sync.Mutex
	fd     int // -1 after Close
	names  map[int]string
	frames []Frame
	buf    [1 << 17]byte // GSO frames are longer than 64 KiB at most by their headers
	oob    [512]byte
}

// StartCapture records from now on, at all devices of the namespace, those that come later included.
func StartCapture(ns *netns.NS) (*Capture, error) {
	c := &Capture{ns: ns, fd: -1, names: map[int]string{}}
	links, err := netns.List(c.ns.Netlink().LinkList)
	if err != nil {
		return nil, fmt.Errorf("%s: capture: list devices: %w", ns.Name(), err)
	}
	for _, l := range links {
		c.names[l.Attrs().Index] = l.Attrs().Name
	}
	fd, err := ns.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, 0) // which takes nothing yet
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	const everything = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	err = errors.Join(
		receiveBuffer(fd, captureBuffer),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything})) // last: a busy node fills the usual buffer meanwhile
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: capture: %w", ns.Name(), err), unix.Close(fd))
	}
	c.fd, c.file, c.ended = fd, os.NewFile(uintptr(fd), "capture on "+ns.Name()), make(chan struct{})
	raw, err := c.file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: capture: %w", ns.Name(), err), c.file.Close())
	}
	go c.read(raw)
	return c, nil
}

// read takes in packets as they come, until Close.
func (c *Capture) read(raw syscall.RawConn) {
	defer close(c.ended)
	_ = raw.Read(func(uintptr) bool { // its error is that the file is closed
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drain()
		return false
	})
}

// receiveBuffer sizes a socket's buffer. Beyond net.core.rmem_max, which is the machine's, root alone may go: for
// others it stays smaller, and a burst overruns it sooner.
func receiveBuffer(fd, size int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	}
	return err
}

// Close ends the recording; what has been recorded stays. It takes some 10 ms, in which the kernel waits for every CPU
// to let go of the socket (packet_release).
func (c *Capture) Close() error {
	c.mu.Lock()
	if c.fd < 0 {
		c.mu.Unlock()
		return nil
	}
	c.drain()
	c.fd = -1
	c.mu.Unlock()
	err := c.file.Close()
	<-c.ended
	return err
}

// Packets are all frames so far, in the order in which they were recorded. Those that different CPUs have worked on at
// the same time can be in the wrong order by some microseconds; At is exact.
func (c *Capture) Packets() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	return c.frames[:len(c.frames):len(c.frames)]
}

// Take are the frames that have been recorded since the last call, as Packets has them. They are not kept.
func (c *Capture) Take() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	taken := c.frames
	c.frames = nil
	return taken
}

// Lost is how many frames were lost since the last call, for want of room in the buffer.
func (c *Capture) Lost() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("%s: capture: statistics: %w", c.ns.Name(), err)
	}
	return int(stats.Drops), nil
}

func (c *Capture) drain() {
	for c.fd >= 0 {
		n, oobn, _, from, err := unix.Recvmsg(c.fd, c.buf[:], c.oob[:], 0)
		if err == unix.EINTR || err == unix.ENETDOWN { // ENETDOWN: a device has gone down, the others go on
			continue
		}
		if err != nil {
			return
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if !ok {
			continue
		}
		f := Frame{
			Device: c.name(link.Ifindex), Direction: direction(link.Pkttype),
			Ethernet: link.Hatype == unix.ARPHRD_ETHER || link.Hatype == unix.ARPHRD_LOOPBACK,
			Data:     append([]byte(nil), c.buf[:n]...),
		}
		f.readControl(c.oob[:oobn])
		c.frames = append(c.frames, f)
	}
}

func (c *Capture) name(index int) string {
	name, known := c.names[index]
	if !known {
		name = fmt.Sprintf("if%d", index)
		if l, err := c.ns.Netlink().LinkByIndex(index); err == nil {
			name = l.Attrs().Name
		}
		c.names[index] = name
	}
	return name
}

func direction(packetType uint8) Direction {
	switch packetType {
	case unix.PACKET_OUTGOING:
		return Out
	case unix.PACKET_OTHERHOST:
		return Other
	}
	return In
}

// statusChecksumNotReady is TP_STATUS_CSUMNOTREADY in the first word of struct tpacket_auxdata (packet(7)).
const statusChecksumNotReady = 1 << 3

func (f *Frame) readControl(oob []byte) {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return
		}
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPNS && len(data) >= 16:
			f.At = time.Unix(int64(binary.NativeEndian.Uint64(data)), int64(binary.NativeEndian.Uint64(data[8:])))
		case h.Level == unix.SOL_PACKET && h.Type == unix.PACKET_AUXDATA && len(data) >= 4:
			f.ChecksumPending = binary.NativeEndian.Uint32(data)&statusChecksumNotReady != 0
		}
		oob = rest
	}
}
