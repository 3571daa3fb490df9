package traffic

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fenceEchoes is how many echoes prove a silence at least. One is enough where the path of the fence is as long as that
// of the probe; a short one (a gateway that is one hop away) has to be walked as often as it fits into the other.
const fenceEchoes = 4

// echoAgain is how long an echo may remain unanswered before it is sent again.
const echoAgain = 100 * time.Millisecond

// cpus is a thread that can be put on one CPU at a time.
type cpus struct{ allowed unix.CPUSet }

// onOneCPU runs f on a thread that stays on the CPU where it happens to be.
func onOneCPU(f func(cpus)) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		var c cpus
		if err := unix.SchedGetaffinity(0, &c.allowed); err != nil {
			done <- fmt.Errorf("sched_getaffinity: %w", err)
			return
		}
		if err := c.stay(); err != nil {
			done <- err
			return
		}
		f(c)
		if err := unix.SchedSetaffinity(0, &c.allowed); err != nil {
			done <- fmt.Errorf("sched_setaffinity: %w", err)
			return // locked: the runtime ends the thread, nobody inherits its affinity
		}
		runtime.UnlockOSThread()
		done <- nil
	}()
	return <-done
}

func (c cpus) stay() error {
	var cpu uint32
	if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
		return fmt.Errorf("getcpu: %w", errno)
	}
	return c.moveTo(int(cpu))
}

func (c cpus) moveTo(cpu int) error {
	var only unix.CPUSet
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return fmt.Errorf("sched_setaffinity to CPU %d: %w", cpu, err)
	}
	return nil
}

// each runs f on one allowed CPU after the other, until it reports false.
func (c cpus) each(f func() bool) error {
	for cpu := range len(c.allowed) * 64 {
		if !c.allowed.IsSet(cpu) {
			continue
		}
		if err := c.moveTo(cpu); err != nil {
			return err
		}
		if !f() {
			return nil
		}
	}
	return nil
}

// fence sends the echoes, each after the answer to the one before, and looks at the probe's sockets after each. Every
// address is asked. It stops as soon as done reports true.
func (c *Conn) fence(ctx context.Context, done func() bool) error {
	fences := c.probe.Fences
	for i := range max(fenceEchoes, len(fences)) {
		if err := c.echo(ctx, fences[i%len(fences)]); err != nil {
			return err
		}
		if done() {
			return nil
		}
	}
	return nil
}

// echo sends an echo request and waits for its answer.
func (c *Conn) echo(ctx context.Context, to netip.Addr) error {
	c.echoSeq++
	c.echoFrom, c.echoed = to, false
	message := echoRequest(to, c.echoID, c.echoSeq)
	for {
		if err := unix.Sendto(c.icmp, message, 0, sockaddr(netip.AddrPortFrom(to, 0))); err != nil {
			return fmt.Errorf("fence %s: send echo: %w", to, err)
		}
		c.echoes++
		for again := time.Now().Add(echoAgain); !c.echoed; {
			c.readICMP()
			if c.echoed {
				break
			}
			wait := time.Until(again)
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("fence %s did not answer: %w", to, err)
			}
			if wait <= 0 {
				break
			}
			pollIn(c.icmp, wait)
		}
		if c.echoed {
			return nil
		}
	}
}

// pollIn waits until fd is readable, at most for the given time.
func pollIn(fd int, wait time.Duration) {
	timeout := unix.NsecToTimespec(int64(wait))
	unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil) // the caller looks anyway
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
		binary.BigEndian.PutUint16(b[2:], checksum(b)) // the kernel does it for ICMPv6 (RFC 3542 3.1)
	}
	return b
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
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
