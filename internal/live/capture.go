// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/viplab/viplab/internal/live/control"
	"github.com/viplab/viplab/lab/observe"
)

// Capture prints the packets at a place.
const Capture = "capture" // CaptureArgs, no result

// CaptureArgs are the arguments of Capture.
type CaptureArgs struct {
	Place         // its name may end in "/" and a device
	Pcapng bool   // in this format instead of text
	Count  int    // how many packets to print; 0 means until the request is cancelled
	Match  string // if not empty, only packets whose line of text contains it
}

// lookEvery is how often a capture prints what has arrived.
const lookEvery = 20 * time.Millisecond

func (l *Lab) capture(ctx context.Context, call *control.Call) (any, error) {
	var args CaptureArgs
	if err := call.Args(&args); err != nil {
		return nil, err
	}
	at, device, err := l.findDevice(args.Place)
	if err != nil {
		return nil, err
	}
	if _, err := at.ns().Netlink().LinkByName(device); device != "" && err != nil {
		return nil, fmt.Errorf("%s has no device %q: %w", at.ns().Name(), device, err)
	}
	c, err := observe.StartCapture(at.ns())
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(call.Stderr, "capturing at %s until Ctrl-C\n", args.Name)
	p := printer{args: args, device: device, place: at.ns().Name(), w: call.Stdout}
	p.file = observe.NewPcapngWriter(call.Stdout)
	err = p.follow(ctx, c)
	lost, lostErr := c.Lost()
	if lost > 0 {
		fmt.Fprintf(call.Stderr, "%d packets were lost: the buffer was full\n", lost)
	}
	return nil, errors.Join(err, lostErr, c.Close())
}

// findDevice finds a place, or a device of one: NODE/DEVICE. The device is empty for all of them.
func (l *Lab) findDevice(p Place) (spot, string, error) {
	at, err := l.find(p)
	if err == nil {
		return at, "", nil
	}
	i := strings.LastIndex(p.Name, "/")
	if i < 0 {
		return at, "", err
	}
	device := p.Name[i+1:]
	p.Name = p.Name[:i]
	if at, deviceErr := l.find(p); deviceErr == nil {
		return at, device, nil
	}
	return at, "", err
}

// printer prints what a capture records.
type printer struct {
	args    CaptureArgs
	device  string // empty means all
	place   string
	w       io.Writer
	file    *observe.PcapngWriter
	printed int
}

// follow prints packets until there have been enough, or the context ends.
func (p *printer) follow(ctx context.Context, c *observe.Capture) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for last := false; !last; {
		select {
		case <-look.C:
		case <-ctx.Done():
			last = true
		}
		frames := c.Take()
		slices.SortStableFunc(frames, func(a, b observe.Frame) int { return a.At.Compare(b.At) })
		for _, f := range frames {
			if err := p.print(f); err != nil {
				return err
			}
			if p.args.Count > 0 && p.printed == p.args.Count {
				return nil
			}
		}
	}
	return nil
}

// print prints a packet that is wanted.
func (p *printer) print(f observe.Frame) error {
	if p.device != "" && f.Device != p.device {
		return nil
	}
	packet, err := observe.Decode(f)
	var text string
	if err == nil {
		text = describe(packet)
	} else if !p.args.Pcapng {
		return nil // ARP and the like
	}
	if !strings.Contains(text, p.args.Match) {
		return nil
	}
	p.printed++
	if p.args.Pcapng {
		return p.file.Write(p.place, f)
	}
	_, err = fmt.Fprintf(p.w, "%s %-16s %-3s %s\n", f.At.Format("15:04:05.000000"), f.Device, f.Direction, text)
	return err
}

// describe returns a packet in a line, the tunnel that it is in at the end.
func describe(p *observe.Packet) string {
	inner := p.Innermost()
	if inner == p {
		return p.String()
	}
	return fmt.Sprintf("%s (in %s from %s to %s)", inner, p.Proto, p.Src.Addr(), p.Dst.Addr())
}
