// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"regexp"
	"slices"
	"strings"
)

var (
	elementsOf = regexp.MustCompile(`(?s)elements = \{ (.*?) \}\n`)
	expiry     = regexp.MustCompile(` expires \S+`)
)

// canonical sorts a listing of a table: the kernel lists objects by age, and elements by hash.
func canonical(listing string) string {
	listing = elementsOf.ReplaceAllStringFunc(listing, func(s string) string {
		elements := strings.Split(elementsOf.FindStringSubmatch(s)[1], ",")
		for i, e := range elements {
			elements[i] = expiry.ReplaceAllString(strings.TrimSpace(e), "")
		}
		slices.Sort(elements)
		return "elements\n\t\t\t" + strings.Join(elements, "\n\t\t\t") + "\n"
	})
	head, body, ok := strings.Cut(listing, "{\n")
	if !ok {
		return listing
	}
	blocks := strings.Split(strings.TrimSuffix(body, "}\n"), "\n\n")
	for i, b := range blocks {
		blocks[i] = strings.Trim(b, "\n")
	}
	slices.Sort(blocks)
	return head + "{\n" + strings.Join(blocks, "\n") + "\n}\n"
}

// difference lists the lines that only one of two canonical listings has.
func difference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var out []string
	for _, line := range g {
		if !slices.Contains(w, line) {
			out = append(out, "- "+line)
		}
	}
	for _, line := range w {
		if !slices.Contains(g, line) {
			out = append(out, "+ "+line)
		}
	}
	return strings.Join(out, "\n")
}
