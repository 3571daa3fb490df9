// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"io"
	"slices"
	"strings"

	"github.com/viplab/viplab/lab/observe"
)

// WritePcapng writes the packets of all walks of traces as devices saw them, by time. The comment of a packet names the
// place and the device, and what the place had done to the packet since the device before. If the packet ended behind
// the device, it also says how.
func WritePcapng(w io.Writer, traces ...*Traced) error {
	var all []observe.CommentedFrame
	for _, t := range traces {
		for _, walk := range t.Walks() {
			all = append(all, walk.commented()...)
		}
	}
	slices.SortStableFunc(all, func(a, b observe.CommentedFrame) int { return a.At.Compare(b.At) })
	return observe.WriteCommentedPcapng(w, all)
}

// commented returns the frames of a walk, with comments. The kernel begins to take time stamps a little after the first
// socket has asked for them. Until then a packet gets its stamp when it is read, maybe after that of the next device.
func (w *Walk) commented() (all []observe.CommentedFrame) {
	var since []string
	for i, s := range w.Steps {
		if i > 0 && s.Place != w.Steps[i-1].Place {
			since = nil
		}
		since = append(since, s.lines()...)
		if s.Frame == nil {
			continue
		}
		direction := observe.In
		if s.Direction == "out" {
			direction = observe.Out
		}
		all = append(all, observe.CommentedFrame{
			Frame: observe.Frame{
				At: s.Frame.At, Device: s.Device, Direction: direction, Ethernet: s.Frame.Ethernet, Data: s.Frame.Data,
			},
			Namespace: s.Place, Length: s.Frame.Length, Comment: strings.Join(since, "\n"),
		})
		since = nil
	}
	for i := len(all) - 2; i >= 0; i-- {
		if later := all[i+1].At; all[i].At.After(later) {
			all[i].At = later
		}
	}
	if len(all) > 0 {
		last := &all[len(all)-1]
		if w.End != nil {
			since = append(since, strings.TrimSpace(w.End.Text+" "+w.End.Why))
		}
		last.Comment = strings.Join(append([]string{last.Comment}, since...), "\n")
	}
	return all
}

// lines tells a step in lines.
func (s Step) lines() []string {
	lines := []string{s.Place + " " + s.String()}
	if s.About != "" {
		lines = append(lines, "# "+s.About)
	}
	if s.After != nil {
		lines = append(lines, s.After.Line(s.Changed))
	}
	return lines
}
