// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/viplab/viplab/internal/lab/ruleset"
)

// selector is something of a packet that a rule of nftables can look up.
const selector = `(?:ip6? [sd]addr|meta l4proto|(?:th|tcp|udp|sctp) [sd]port)`

// lookup matches the part of a rule that looks a packet up in a set or map with a name.
var lookup = regexp.MustCompile(`(` + selector + `(?: \. ` + selector + `)*) (?:v?map )?@(\S+)`)

// elements returns the elements of sets and maps that a rule of a table finds for a packet, of each lookup the first.
// Lookups of other things than addresses, ports and the protocol are left out.
func elements(t *ruleset.Table, rule, proto string, now Tuple) (found []ruleset.Element) {
	for _, m := range lookup.FindAllStringSubmatch(rule, -1) {
		set := t.Set(m[2])
		if set == nil {
			continue
		}
		key := keyIn(strings.Split(m[1], " . "), proto, now)
		if i := slices.IndexFunc(set.Elements, func(e ruleset.Element) bool { return has(e, key) }); i >= 0 {
			found = append(found, set.Elements[i])
		}
	}
	return found
}

// keyIn returns the parts of a packet that selectors name.
func keyIn(selectors []string, proto string, now Tuple) (key []string) {
	for _, s := range selectors {
		at := now.Dst
		if strings.HasPrefix(s[strings.Index(s, " ")+1:], "s") {
			at = now.Src
		}
		switch {
		case s == "meta l4proto":
			key = append(key, proto)
		case strings.HasSuffix(s, "addr"):
			key = append(key, at.Addr().String())
		default:
			key = append(key, strconv.Itoa(int(at.Port())))
		}
	}
	return key
}

// afterKey matches what follows the key of an element.
var afterKey = regexp.MustCompile(` (?:comment|timeout|expires|counter|:) .*`)

// has reports whether an element has a key: the same values, or prefixes and ranges that contain them.
func has(e ruleset.Element, key []string) bool {
	parts := strings.Split(afterKey.ReplaceAllString(e.Text, ""), " . ")
	return slices.EqualFunc(parts, key, contains)
}

// contains reports whether a part of an element ("10.0.0.0/8", "80-90", "tcp", "*") has a value.
func contains(part, value string) bool {
	if part == value || part == "*" {
		return true
	}
	if prefix, err := netip.ParsePrefix(part); err == nil {
		a, err := netip.ParseAddr(value)
		return err == nil && prefix.Contains(a)
	}
	first, last, ok := strings.Cut(part, "-")
	return ok && compare(first, value) <= 0 && compare(value, last) <= 0
}

// compare compares two addresses or two numbers.
func compare(a, b string) int {
	x, err := netip.ParseAddr(a)
	y, other := netip.ParseAddr(b)
	if err == nil && other == nil {
		return x.Compare(y)
	}
	m, _ := strconv.Atoi(a) // a port: the kernel has no ranges of other things that elements are looked up by
	n, _ := strconv.Atoi(b)
	return cmp.Compare(m, n)
}

// describe adds the elements that rules find to the annotations of a walk.
func (t *Tracer) describe(w *Walk, proto string) {
	for i := range w.Steps {
		for _, p := range t.spots {
			if s := &w.Steps[i]; s.Place == p.ns.Name() && s.Backend == string(ruleset.NFTables) {
				p.describe(s, proto)
			}
		}
	}
}

func (p *spot) describe(s *Step, proto string) {
	t := p.table(s.Family, s.Table)
	if t == nil {
		return
	}
	var about []string
	for _, e := range elements(t, s.Rule, proto, s.Before) {
		about = append(about, "finds "+e.Text)
		if e.About != "" {
			about = append(about, e.About)
		}
	}
	if s.About != "" {
		about = append(about, s.About)
	}
	s.About = strings.Join(about, "; ")
}
