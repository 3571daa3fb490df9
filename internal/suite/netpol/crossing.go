// SPDX-License-Identifier: Apache-2.0

package netpol

import (
	"fmt"

	"github.com/viplab/viplab/lab/observe"
)

// crossing is the evidence for enforcers that log nothing: the packets on the devices of the pods. Without policies
// every pod reaches every pod, so a packet that left its sender and did not reach its target was dropped by a policy.
type crossing []*observe.Capture

func (c crossing) drain() (func(sent, delivered flowKey) Mark, error) {
	left, arrived := map[flowKey]bool{}, map[flowKey]bool{}
	for i, capture := range c {
		for _, f := range capture.Take() {
			p, err := observe.Decode(f)
			if err != nil {
				continue // not an IP packet
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
