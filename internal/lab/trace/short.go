// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"fmt"
	"slices"

	"github.com/viplab/viplab/lab/traffic"
)

// Short returns lines that say what has changed the addresses of the packet, and how it ended. If there was no answer,
// they say the same of the segment that answers, and what the kernel has counted as dropped.
func (t *Traced) Short() []string {
	lines := t.Walk.short("")
	if t.Relayed != nil {
		lines = append(lines, t.Relayed.short("the connection of the relay: ")...)
	}
	if t.Reply != nil && t.Outcome == traffic.Silence.String() {
		lines = append(lines, t.Reply.short("the answer: ")...)
	}
	for _, l := range t.Losses {
		lines = append(lines, fmt.Sprintf("%s: %s has counted %d packets of all senders: %s", l.Place, l.Counter, l.Packets,
			l.Why))
	}
	return lines
}

func (w *Walk) short(prefix string) (lines []string) {
	for _, s := range w.Steps {
		if slices.ContainsFunc(s.Changed, func(c string) bool { return c != "mark" && c != "state" }) {
			lines = append(lines, fmt.Sprintf("%s%s: now %s > %s, by: %s", prefix, s.Place, s.After.Src, s.After.Dst, s))
		}
	}
	if w.End == nil {
		return lines
	}
	lines = append(lines, prefix+w.End.Text)
	if w.End.Why != "" {
		lines = append(lines, "  # "+w.End.Why)
	}
	if w.End.Step < len(w.Steps) && w.Steps[w.End.Step].About != "" {
		lines = append(lines, "  # "+w.Steps[w.End.Step].About)
	}
	return lines
}
