// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"errors"
	"fmt"

	"github.com/viplab/viplab/lab/netns"
	"github.com/viplab/viplab/lab/observe"
)

// crossing is the evidence on enforcers that log nothing: what crosses the devices of the pods. A packet that has left
// its sender and has not come to its target was dropped in between; all ways were open when there were no policies.
type crossing []*observe.Capture

func watchCrossing(pods []*netns.NS) (crossing, error) {
	var c crossing
	for _, ns := range pods {
		capture, err := observe.StartCapture(ns)
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c = append(c, capture)
	}
	return c, nil
}

func (c crossing) collect() (func(sent, delivered flowKey) Mark, error) {
	left, arrived := map[flowKey]bool{}, map[flowKey]bool{}
	for i, capture := range c {
		for _, f := range capture.Take() {
			p, err := observe.Decode(f)
			if err != nil {
				continue // not of IP
			}
			key := flowKey{p.Proto, p.Src, p.Dst}
			if f.Direction == observe.Out {
				left[key] = true
			} else {
				arrived[key] = true
			}
		}
		lost, err := capture.Lost()
		if err == nil && lost > 0 {
			err = fmt.Errorf("%d packets were not recorded, so there is no evidence", lost)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Pods[i], err)
		}
	}
	return func(sent, delivered flowKey) Mark {
		switch {
		case arrived[delivered]:
			return Arrived
		case left[sent]:
			return Dropped
		}
		return Lost
	}, nil
}

func (c crossing) close() error { return closeAll(c) }
