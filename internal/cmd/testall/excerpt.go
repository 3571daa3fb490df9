// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"
)

const (
	mostKept  = 10_000 // lines of output kept of a test that runs
	mostTail  = 30     // lines of its end in an excerpt
	shortTail = 15     // the same beside failed Ginkgo specs
	mostNames = 20     // lines with the names of these
	mostSpecs = 45     // lines about these, with the names
	mostWidth = 400    // bytes of a line
)

// keep appends output of a running test. It drops the oldest half of what grows too long.
func keep(said []string, output string) []string {
	if len(said) >= mostKept {
		said = slices.Delete(said, 0, mostKept/2)
	}
	return append(said, output)
}

// excerpt returns the part of a failed test's output that says what failed, indented: Ginkgo's failed specs, if there
// are any, and the last lines.
func excerpt(said ...string) string {
	var lines []string
	for line := range strings.Lines(strings.Join(said, "")) {
		if line = strings.TrimRight(line, " \r\n"); line != "" {
			lines = append(lines, shortened(line))
		}
	}
	specs, tail := head(failedSpecs(lines), mostSpecs), mostTail
	if len(specs) > 0 {
		tail = shortTail
	}
	if len(lines) > tail {
		lines = append([]string{"..."}, lines[len(lines)-tail+1:]...)
	}
	var b strings.Builder
	for _, line := range slices.Concat(specs, lines) {
		b.WriteString("    " + line + "\n")
	}
	return b.String()
}

func head(lines []string, most int) []string {
	if len(lines) <= most {
		return lines
	}
	return append(slices.Clone(lines[:most-1]), "...")
}

func shortened(line string) string {
	if len(line) > mostWidth {
		line = strings.ToValidUTF8(line[:mostWidth], "") + " ..."
	}
	return line
}

// Ginkgo reports a failed spec from a header such as "• [FAILED] [0.1 seconds]" to a line of hyphens, and names it
// again in a table at the end.
var (
	specHeader = regexp.MustCompile(`^(•|\[\w+\]) \[(FAILED|PANICKED|TIMEDOUT|INTERRUPTED|ABORTED)\b`)
	specName   = regexp.MustCompile(`^\s+\[(FAIL|PANICKED!|TIMEDOUT|INTERRUPTED|ABORTED)\] `)
)

// failedSpecs returns the lines about failed Ginkgo specs: first the names of all, then their reports.
func failedSpecs(lines []string) []string {
	var names, reports []string
	inReport := false
	for _, line := range lines {
		if specHeader.MatchString(line) {
			inReport = true
		} else if strings.HasPrefix(line, "----------") {
			inReport = false
		}
		if inReport {
			reports = append(reports, line)
		} else if specName.MatchString(line) {
			names = append(names, line)
		}
	}
	return append(head(names, mostNames), reports...)
}
