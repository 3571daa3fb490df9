// SPDX-License-Identifier: Apache-2.0

package lessons

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// mask replaces a part of an output that differs from run to run.
type mask struct {
	find *regexp.Regexp
	with string
}

// always are the masks of every output.
var always = []mask{
	// The order of the columns is that of the widest cell, which may be masked.
	{regexp.MustCompile(`[ \t]+`), " "},
	// Names of pods of a Deployment: two hashes.
	{regexp.MustCompile(`\b([a-z0-9]+(?:-[a-z0-9]+)*)-[a-z0-9]{8,10}-[a-z0-9]{5}\b`), "$1-HASH"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	// Before ages: a byte may look like one.
	{regexp.MustCompile(`\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b`), "MAC"},
	{regexp.MustCompile(`\b(\d+d)?(\d+h)?(\d+m)?\d+s\b|\b\d+[dhm]\b`), "AGE"},
	// The seconds that a conntrack entry has left.
	{regexp.MustCompile(`(?m)^ ?(tcp|udp|icmp|sctp) (\d+) \d+ `), "$1 $2 SECONDS "},
	// How far the end of a TCP connection has come, in an entry of conntrack.
	{regexp.MustCompile(`(?m)(\| \S+ -> \S+) (CLOSE|TIME_WAIT)\b`), "$1 ENDED"},
	// iptables prints protocols by number or by name, depending on its version.
	{regexp.MustCompile(`(?m)^( ?\S+(?: \S+ \S+)?) 0 --`), "$1 all --"},
	{regexp.MustCompile(`(?m)^( ?\S+(?: \S+ \S+)?) 6 --`), "$1 tcp --"},
	{regexp.MustCompile(`(?m)^( ?\S+(?: \S+ \S+)?) 17 --`), "$1 udp --"},
	// What kubectl says of the first change of an object that it has not created.
	{regexp.MustCompile(`(?m)^Warning: resource \S+ is missing the kubectl\.kubernetes\.io/last-applied.*\n`), ""},
	// "viplab apply" names objects by their plural.
	{regexp.MustCompile(`(?m)^([a-z]+?)(s|ies|y)?(\.[a-z0-9.]+)?/(\S+) (created|configured|unchanged)$`), "$1 $4 $5"},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// named are the masks that a lesson asks for by name.
var named = map[string][]mask{
	"counters": {
		{regexp.MustCompile(`(?m)^ ?\d+[KMG]? \d+[KMG]? `), "N N "},
		{regexp.MustCompile(`\d+ packets, \d+ bytes`), "N packets, N bytes"},
		{regexp.MustCompile(`packets( |=)\d+ bytes( |=)\d+`), "packets${1}N bytes${2}N"},
		{regexp.MustCompile(`\[\d+:\d+\]`), "[N:N]"},
	},
}

// port finds a port: behind an address, in the words of conntrack and of netfilter's logs, or in a column of "viplab
// trace".
var port = regexp.MustCompile(`(:|\b[sdSD](?:port|pt|PORT|PT)=|\| ?\*?)(\d{4,5})\b`)

// compileMasks turns the masks of a lesson.yaml into those to apply, the common ones first.
func compileMasks(list []string) ([]mask, error) {
	out := slices.Clone(always)
	for _, m := range list {
		if known, ok := named[m]; ok {
			out = append(out, known...)
			continue
		}
		find, err := regexp.Compile("(?m)" + m)
		if err != nil {
			return nil, fmt.Errorf("mask %q is neither \"counters\" nor a regular expression: %w", m, err)
		}
		out = append(out, mask{find, "*"})
	}
	return out, nil
}

// Masked returns an output of a step without what may differ from run to run. A port stays if the lesson's files name
// it.
func (l *Lesson) Masked(s *Step, output string) string {
	for _, m := range s.masks {
		output = m.find.ReplaceAllString(output, m.with)
	}
	output = port.ReplaceAllStringFunc(output, func(text string) string {
		found := port.FindStringSubmatch(text)
		if l.ports[found[2]] {
			return text
		}
		return found[1] + "PORT"
	})
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	if s.Unordered {
		slices.Sort(lines)
	}
	return strings.Join(lines, "\n")
}

// Differences returns the lines by which an output differs from the recorded one, or nil. Lines that are gone begin
// with -, new ones with +; all are masked.
func (l *Lesson) Differences(s *Step, output string) []string {
	return diff(strings.Split(l.Masked(s, s.Output), "\n"), strings.Split(l.Masked(s, output), "\n"))
}

// diff returns the lines that are not in the longest common subsequence of two lists, or nil if there are none.
func diff(want, got []string) []string {
	length := make([][]int, len(want)+1)
	for i := range length {
		length[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			length[i][j] = max(length[i+1][j], length[i][j+1])
			if want[i] == got[j] {
				length[i][j] = length[i+1][j+1] + 1
			}
		}
	}
	var out []string
	for i, j := 0, 0; i < len(want) || j < len(got); {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			i, j = i+1, j+1
		case j == len(got) || i < len(want) && length[i+1][j] >= length[i][j+1]:
			out = append(out, "- "+want[i])
			i++
		default:
			out = append(out, "+ "+got[j])
			j++
		}
	}
	return out
}
