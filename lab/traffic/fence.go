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

// allowedCPUs returns the CPUs that the thread may run on.
func allowedCPUs() (unix.CPUSet, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return set, fmt.Errorf("sched_getaffinity: %w", err)
	}
	return set, nil
}

// numbers returns the numbers of the CPUs of a set.
func numbers(set unix.CPUSet) (out []int) {
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			out = append(out, cpu)
		}
	}
	return out
}

// presentCPU returns the CPU that the thread runs on.
func presentCPU() (int, error) {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return 0, fmt.Errorf("getcpu: %w", errno)
	}
	return int(cpu), nil
}

// cpusOf runs f and returns the CPUs that it may have run on: one, unless the kernel has switched the thread meanwhile.
// It cannot move a thread to another CPU without that.
func cpusOf(f func()) (cpus unix.CPUSet, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := switches()
	if err != nil {
		return cpus, err
	}
	cpu, err := presentCPU()
	if err != nil {
		return cpus, err
	}
	f()
	after, err := switches()
	if err != nil || after != before {
		all, failed := allowedCPUs()
		return all, errors.Join(err, failed)
	}
	cpus.Set(cpu)
	return cpus, nil
}

// switches returns how often the kernel has taken the thread off its CPU (getrusage(2)).
func switches() (int64, error) {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &usage); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return usage.Nvcsw + usage.Nivcsw, nil
}

// onCPU runs f on a thread that stays on the given CPU.
func onCPU(cpu int, f func()) error {
	runtime.LockOSThread()
	allowed, err := allowedCPUs()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	if err = moveTo(cpu); err == nil {
		f()
	}
	if err := unix.SchedSetaffinity(0, &allowed); err != nil {
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

// fenceFrom fences from one CPU after the other, until done reports true. It calls done after each.
func (c *Conn) fenceFrom(ctx context.Context, cpus unix.CPUSet, done func() bool) error {
	for _, cpu := range numbers(cpus) {
		ended, failed := false, error(nil)
		err := onCPU(cpu, func() {
			failed = c.fence(ctx, func() bool { ended = done(); return ended })
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		if ended || done() {
			return nil
		}
	}
	return nil
}

// fence sends the echoes to every address from this thread, each after the answer to the one before. It ends early if
// done reports true. done looks at the probe's own socket; fence calls it after every slow echo.
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

// freshDrops is how old the number of dropped packets may be that a probe begins with. Most probes are over sooner than
// a new one is read.
const freshDrops = 2 * time.Millisecond

// drops is the last number of dropped packets that a probe began with.
var drops struct {
	sync.Mutex
	at    time.Time
	total uint64
}

// droppedBefore returns a recent number of dropped packets. A packet that has been dropped since counts against the
// caller's silence.
func droppedBefore() (uint64, error) {
	drops.Lock()
	defer drops.Unlock()
	if time.Since(drops.at) < freshDrops {
		return drops.total, nil
	}
	at := time.Now()
	total, err := droppedPackets()
	if err == nil {
		drops.at, drops.total = at, total
	}
	return total, err
}

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
