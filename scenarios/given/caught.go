// SPDX-License-Identifier: Apache-2.0

package given

import (
	"errors"

	"github.com/viplab/viplab/lab/observe"
	"github.com/viplab/viplab/suite/spec"
)

// Caught is an IP packet that was seen at a device of a host.
type Caught struct {
	Host string
	observe.Frame
	*observe.Packet
}

// Catch captures every packet of the hosts while f runs.
func Catch(w spec.World, f func() error, hosts ...string) (caught []Caught, err error) {
	var captures []*observe.Capture
	defer func() {
		for _, c := range captures {
			err = errors.Join(err, c.Close())
		}
	}()
	for _, name := range hosts {
		h, err := w.Host(name)
		if err != nil {
			return nil, err
		}
		c, err := observe.StartCapture(h.NS)
		if err != nil {
			return nil, &spec.HarnessError{Err: err}
		}
		captures = append(captures, c)
	}
	if err := f(); err != nil {
		return nil, err
	}
	for i, c := range captures {
		if lost, err := c.Lost(); err != nil {
			return nil, &spec.HarnessError{Err: err}
		} else if lost > 0 {
			return nil, spec.HarnessErrorf("the capture on %s has lost %d packets, for want of room in its buffer", hosts[i], lost)
		}
		for _, frame := range c.Packets() {
			p, err := observe.Decode(frame)
			if errors.Is(err, observe.ErrNotIP) {
				continue
			}
			if err != nil {
				return nil, &spec.HarnessError{Err: err}
			}
			caught = append(caught, Caught{hosts[i], frame, p})
		}
	}
	return caught, nil
}
