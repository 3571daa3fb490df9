// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/viplab/viplab/lab/netns"
)

// The proof of silence takes promptEchoes echoes in a row that were answered when the sending call returned, as the
// kernel empties its queue inside the call. If its thread does (ksoftirqd, under load, before Linux 6.5), only the
// order of the queue remains: then it takes patientEchoes, whose path together is longer than any of a probe.
const promptEchoes, patientEchoes = 4, 32

// echoAgain is the time after which an unanswered echo is sent again.
const echoAgain = 100 * time.Millisecond

// cpus is the set of CPUs that a thread may run on.
type cpus struct{ set unix.CPUSet }

func allowedCPUs() (cpus, error) {
	var c cpus
	if err := unix.SchedGetaffinity(0, &c.set); err != nil {
		return c, fmt.Errorf("sched_getaffinity: %w", err)
	}
	return c, nil
}

func (c cpus) numbers() (out []int) {
	for cpu := range len(c.set) * 64 {
		if c.set.IsSet(cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

// onOneCPU runs f on a thread that stays on its present CPU. f gets the CPUs that it may move to.
func onOneCPU(f func(cpus)) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return fmt.Errorf("getcpu: %w", errno)
	}
	return onCPU(int(cpu), f)
}

// onCPU runs f on a thread that stays on the given CPU. f gets the CPUs that it may move to.
func onCPU(cpu int, f func(cpus)) error {
	runtime.LockOSThread()
	allowed, err := allowedCPUs()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	if err = moveTo(cpu); err == nil {
		f(allowed)
	}
	if err := unix.SchedSetaffinity(0, &allowed.set); err != nil {
		return fmt.Errorf("sched_setaffinity: %w", err) // the goroutine stays locked to this thread
	}
	runtime.UnlockOSThread()
	return err
}

// moveTo moves the thread to one CPU.
func moveTo(cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("sched_setaffinity to CPU %d: %w", cpu, err)
	}
	return nil
}

// each runs f on one CPU after the other, until f returns false.
func (c cpus) each(f func() bool) error {
	for _, cpu := range c.numbers() {
		if err := moveTo(cpu); err != nil {
			return err
		}
		if !f() {
			return nil
		}
	}
	return nil
}

// fence sends the echoes to every address, each after the answer to the one before. It ends early if done reports true.
// done looks at the probe's own socket; fence calls it after every slow echo, and at the end.
func (c *Conn) fence(ctx context.Context, done func() bool) error {
	fences := c.probe.Fences
	prompt := 0
	for i := 0; i < len(fences) || prompt < promptEchoes && i < patientEchoes; i++ {
		atOnce, err := c.echo(ctx, fences[i%len(fences)])
		if err != nil {
			return err
		}
		if prompt++; !atOnce {
			if prompt = 0; done() {
				return nil
			}
		}
	}
	done()
	return nil
}

// echo sends an echo request until it is answered. atOnce means before the sending call returned.
func (c *Conn) echo(ctx context.Context, to netip.Addr) (atOnce bool, err error) {
	c.echoSeq++
	c.echoFrom, c.echoed = to, false
	message := echoRequest(to, c.echoID, c.echoSeq)
	from := c.icmp
	if c.fences >= 0 {
		from = c.fences
	}
	for tries := 1; ; tries++ {
		if err := unix.Sendto(from, message, 0, netns.Sockaddr(netip.AddrPortFrom(to, 0))); err != nil {
			return false, fmt.Errorf("fence %s: send echo: %w", to, err)
		}
		c.echoes++
		if c.heardEcho() {
			return tries == 1, nil
		}
		for again := time.Now().Add(echoAgain); time.Now().Before(again); {
			if err := ctx.Err(); err != nil {
				return false, fmt.Errorf("fence %s did not answer: %w", to, err)
			}
			pollIn(from, time.Until(again))
			if c.heardEcho() {
				return false, nil
			}
		}
	}
}

// heardEcho reads ICMP messages up to the answer to the last echo, and reports whether it has come.
func (c *Conn) heardEcho() bool {
	take := c.takeICMP
	if c.fences >= 0 {
		take = c.takeFence
	}
	for !c.echoed && take() {
	}
	return c.echoed
}

// takeFence reads one message of the namespace that fences are sent from. It returns false if there is none.
func (c *Conn) takeFence() bool {
	m, ok := receiveICMP(c.fences)
	if ok && m.isEchoReply() {
		c.takeEcho(m)
	}
	return ok
}

func (c *Conn) takeEcho(m icmpMessage) {
	c.echoed = c.echoed || m.id == c.echoID && m.seq == c.echoSeq && m.from == c.echoFrom
}

// pollIn waits until fd is readable, at most for the given time.
func pollIn(fd int, wait time.Duration) {
	timeout := unix.NsecToTimespec(int64(wait))
	_, _ = unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil) // the caller looks anyway
}

func echoRequest(to netip.Addr, id, seq uint16) []byte {
	b := make([]byte, 8)
	b[0] = icmp4EchoRequest
	if to.Is6() {
		b[0] = icmp6EchoRequest
	}
	binary.BigEndian.PutUint16(b[4:], id)
	binary.BigEndian.PutUint16(b[6:], seq)
	if to.Is4() {
		binary.BigEndian.PutUint16(b[2:], checksum(b)) // for ICMPv6 the kernel computes it (RFC 3542 3.1)
	}
	return b
}

// checksum returns the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// errDropped means that silence proves nothing: the queue of a CPU overflowed and packets were lost.
var errDropped = errors.New(
	"too busy to tell: meanwhile a CPU's queue was full and packets were thrown away (net.core.netdev_max_backlog)")

// softnet has a line for each CPU: packets processed, dropped, ... in hexadecimal. All namespaces show the same.
var softnet = sync.OnceValues(func() (*os.File, error) { return os.Open("/proc/net/softnet_stat") })

// droppedPackets returns how many packets the kernel has dropped because the queue of a CPU was full.
func droppedPackets() (total uint64, err error) {
	f, err := softnet()
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			return 0, fmt.Errorf("%s: no column of dropped packets in %q", f.Name(), line)
		}
		n, err := strconv.ParseUint(fields[1], 16, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", f.Name(), err)
		}
		total += n
	}
	return total, nil
}
