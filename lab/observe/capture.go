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

// captureBuffer is the receive buffer of a capture: some ten thousand small packets. Memory is taken as they come.
const captureBuffer = 64 << 20 // bytes

// Frame is a packet at a device: before netfilter's prerouting on the way in, after postrouting on the way out.
type Frame struct {
	// Device is the name of the device, or "if7" if the device was gone before its name was looked up.
	Device string
	// Direction is In, Out, or Other for a packet to another link address.
	Direction Direction
	// At is the kernel's time stamp.
	At time.Time
	// Ethernet reports whether Data begins with an Ethernet header. On devices like tunl0 it begins with the IP header.
	Ethernet bool
	// ChecksumPending reports that the transport checksum is still to be computed: veth leaves it to the network card
	// (see DisableOffloads). For the same reason a frame can be longer than the MTU.
	ChecksumPending bool
	// Data is the packet, without a VLAN tag.
	Data []byte
}

// Direction is the direction of a frame.
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
	file  *os.File      // for the Go poller
	ended chan struct{} // closed when the reader has ended

	mu     sync.Mutex
	fd     int // -1 after Close
	names  map[int]string
	frames []Frame
	buf    [1 << 17]byte // a GSO frame exceeds 64 KiB by its headers at most
	oob    [512]byte
}

// StartCapture starts recording at all devices of the namespace, including devices that are added later.
func StartCapture(ns *netns.NS) (*Capture, error) {
	c := &Capture{ns: ns, fd: -1, names: map[int]string{}}
	links, err := netns.List(c.ns.Netlink().LinkList)
	if err != nil {
		return nil, fmt.Errorf("%s: capture: list devices: %w", ns.Name(), err)
	}
	for _, l := range links {
		c.names[l.Attrs().Index] = l.Attrs().Name
	}
	fd, err := ns.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, 0) // protocol 0: it receives nothing yet
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	const everything = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network order
	err = errors.Join(
		receiveBuffer(fd, captureBuffer),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everything})) // last, or packets fill the default buffer
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

// read records packets as they come, until Close.
func (c *Capture) read(raw syscall.RawConn) {
	defer close(c.ended)
	_ = raw.Read(func(uintptr) bool { // fails only on a closed file
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drain()
		return false
	})
}

// receiveBuffer sets the size of a socket's buffer, for users other than root up to net.core.rmem_max.
func receiveBuffer(fd, size int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size)
	if errors.Is(err, unix.EPERM) {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	}
	return err
}

// Close ends the recording and keeps the frames. It takes some 10 ms, until all CPUs have released the socket.
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

// Packets returns all frames so far, as recorded: CPUs can be out of order by microseconds. At is exact.
func (c *Capture) Packets() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	return c.frames[:len(c.frames):len(c.frames)]
}

// Take returns the frames since the last call, in the order of Packets, and removes them from the recording.
func (c *Capture) Take() []Frame {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drain()
	taken := c.frames
	c.frames = nil
	return taken
}

// Lost returns how many frames the capture has lost since the last call because the buffer was full.
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
		if err == unix.EINTR || err == unix.ENETDOWN { // ENETDOWN: one device has gone down, the others go on
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
