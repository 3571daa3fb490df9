// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
)

// changeSigns mark changes that people look for. The others have a dot.
var changeSigns = map[ChangeKind]string{Regression: "✗", StillFails: "✗", Fixed: "✓", PassesNow: "✓", KnownNow: "k",
	NewSkip: "–"}

// Write prints the changes, the regressions first, and then the counts.
func (c Comparison) Write(w io.Writer, colour bool) error {
	var b strings.Builder
	for _, d := range c.Differences() {
		fmt.Fprintln(&b, d)
	}
	for _, x := range c.Changes {
		sign := changeSigns[x.Kind]
		if sign == "" {
			sign = "·"
		}
		line := fmt.Sprintf("%s %s on %s: %s", sign, x.Scenario, x.Proxier, x.Text())
		if colour && x.Kind == Regression {
			line = "\033[31m" + line + "\033[0m"
		}
		fmt.Fprintln(&b, line)
		if x.Kind == Regression || x.Kind == NewSkip {
			for reason := range strings.Lines(x.Reason) {
				fmt.Fprintf(&b, "  %s\n", strings.TrimRight(reason, "\n"))
			}
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	fmt.Fprintln(&b, c.counts())
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Comparison) counts() string {
	var texts []string
	for _, k := range ChangeKinds {
		if n := c.Counts[k]; n > 0 || k == Regression {
			texts = append(texts, fmt.Sprintf("%d %s", n, k.plural(n)))
		}
	}
	return strings.Join(append(texts, fmt.Sprintf("%d unchanged", c.Same)), ", ")
}

// plural is the kind as n changes are called.
func (k ChangeKind) plural(n int) string {
	if n != 1 && (k == Regression || k == NewSkip) {
		return string(k) + "s"
	}
	return string(k)
}

// Text says what changed.
func (x Change) Text() string {
	switch {
	case x.Kind == Slower:
		return fmt.Sprintf("slower: %s, was %s", millis(x.NewMS), millis(x.OldMS))
	case x.Old == "":
		return fmt.Sprintf("%s: %s, was not there", x.Kind, x.New)
	case x.New == "":
		return fmt.Sprintf("%s: was %s", x.Kind, x.Old)
	default:
		return fmt.Sprintf("%s: %s, was %s", x.Kind, x.New, x.Old)
	}
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

//go:embed compare.html
var compareHTML string

var compareTemplate = template.Must(template.New("compare").Parse(compareHTML))

// WritePage writes the comparison as one HTML page into a file, and makes its folder if need be. Its scenarios link to
// the page of the new report, whose address is relative to the file. Without an address there are no links.
func (c Comparison) WritePage(file, address string) error {
	type group struct {
		Title   string
		Kind    ChangeKind
		Changes []Change
	}
	var groups []group
	for _, k := range ChangeKinds {
		if n := c.Counts[k]; n > 0 {
			of := slices.DeleteFunc(slices.Clone(c.Changes), func(x Change) bool { return x.Kind != k })
			groups = append(groups, group{Title: fmt.Sprintf("%d %s", n, k.plural(n)), Kind: k, Changes: of})
		}
	}
	var b bytes.Buffer
	err := compareTemplate.Execute(&b, map[string]any{
		"Comparison": c, "Groups": groups, "Counts": c.counts(), "Style": CSS(), "Report": address,
	})
	if err != nil {
		return err
	}
	return WriteFile(file, b.Bytes())
}
