// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/trace"
)

// Print writes two traces as one text: "-" is before what only the first has, "+" before what only the second has, and
// other lines are those of both. Ports that the kernel has drawn count as equal.
func Print(out io.Writer, a, b *trace.Traced) error {
	p := bufio.NewWriter(out)
	titles := Titles(a, b)
	for i, t := range []*trace.Traced{a, b} {
		fmt.Fprintf(p, "%s %s: %s, %s\n", []string{"---", "+++"}[i], titles[i], Request(t), t.Verdict)
	}
	left, right := steps(a), steps(b)
	places, heading := [2]string{}, ""
	for _, pair := range Align(a, b) {
		var l, r step
		if pair[0] >= 0 {
			l = left[pair[0]]
			places[0] = l.place
		}
		if pair[1] >= 0 {
			r = right[pair[1]]
			places[1] = r.place
		}
		if at := strings.Join(slices.Compact(slices.Clone(places[:])), " | "); at != heading {
			heading = at
			fmt.Fprintf(p, "\n%s\n", at)
		}
		if l.masked == r.masked {
			lines(p, " ", l.text)
			continue
		}
		lines(p, "-", l.text)
		lines(p, "+", r.text)
	}
	return p.Flush()
}

// step is a step in words, once as it is, and once without the ports that the kernel has drawn.
type step struct{ place, text, masked string }

func lines(p *bufio.Writer, sign, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprintf(p, "%s %s", sign, line)
	}
}

// steps returns the steps of all walks of a trace.
func steps(t *trace.Traced) (all []step) {
	mask := masker(t)
	for _, w := range t.Walks() {
		for i, s := range w.Steps {
			text := s.String() + "\n"
			if s.About != "" {
				text += "    # " + s.About + "\n"
			}
			if s.After != nil {
				text += "    " + s.After.Line(s.Changed) + "\n"
			}
			if w.End != nil && w.End.Step == i {
				text += w.End.Text + "\n"
			}
			all = append(all, step{s.Place, text, mask(text)})
		}
	}
	return all
}

// outerPort is the source port of VXLAN, which the kernel makes from a hash (RFC 7348 5).
var outerPort = regexp.MustCompile(`(vxlan \S+):\d+ >`)

// masker returns a function that hides source ports: those of the request, and those that NAT has drawn.
func masker(t *trace.Traced) func(string) string {
	words := []string{}
	hide := func(port uint16) {
		for _, form := range []string{":%d ", ":%d]", "| %d |", "|*%d |", "| *%d |"} {
			words = append(words, fmt.Sprintf(form, port), fmt.Sprintf(strings.Replace(form, "%d", "%s", 1), "PORT"))
		}
	}
	hide(t.Source.Port())
	for _, w := range t.Walks() {
		for _, s := range w.Steps {
			if s.After != nil && w != t.Reply && s.After.Src.Port() != t.Address.Port() {
				hide(s.After.Src.Port())
			}
		}
	}
	replace := strings.NewReplacer(words...)
	return func(text string) string { return outerPort.ReplaceAllString(replace.Replace(text), "$1:PORT >") }
}

// Titles name two traces by what differs: the request, what serves it, or else their order.
func Titles(a, b *trace.Traced) []string {
	switch {
	case Request(a) != Request(b) && setup(a) != setup(b):
		return []string{Request(a) + ", " + setup(a), Request(b) + ", " + setup(b)}
	case Request(a) != Request(b):
		return []string{Request(a), Request(b)}
	case setup(a) != setup(b):
		return []string{setup(a), setup(b)}
	}
	return []string{"first", "second"}
}

// Request names the request of a trace.
func Request(t *trace.Traced) string {
	to := t.Address.String()
	if t.To != to {
		to = t.To + " " + to
	}
	return fmt.Sprintf("%s → %s/%s", t.From, to, t.Proto)
}

// setup names what serves and guards the pods.
func setup(t *trace.Traced) string {
	if t.Enforcer == "" {
		return t.Proxier
	}
	return t.Proxier + " and " + t.Enforcer
}
