// SPDX-License-Identifier: Apache-2.0

package articles

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// compile compiles a regular expression of a file.
func compile(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("%q is no regular expression: %w", pattern, err)
	}
	return re, nil
}

// alike are spellings of the same thing, and the one that is compared. The page lists what they do.
var alike = []struct {
	find *regexp.Regexp
	with string
}{
	// Commands: the program, or the function of a script that runs it.
	{regexp.MustCompile(`^(sudo )?(iptables|n\d) (-[tI])`), "$3"},
	{regexp.MustCompile(` +"$`), `"`},
	{regexp.MustCompile(`^\[[^]]*\]# `), ""}, // a prompt
	// The kernel's log, with the fields of the tuple alone.
	{regexp.MustCompile(`^[A-Z][a-z]{2} \d+ [\d:]{8} `), ""},
	{regexp.MustCompile(` (MAC|LEN|TOS|PREC|TTL|ID|WINDOW|RES|URGP)=\S*| (DF|SYN)\b`), ""},
	{regexp.MustCompile(` ?IN=`), " IN="},
	// The packet as the second article draws it, and as trace prints it.
	{regexp.MustCompile(`^\| sourceIP: \? .* destinationIP:(\S+) \| destinationPort:(\d+) \|( ?state:NEW \|)?$`),
		"? > $1:$2 mark 0x0"},
	{regexp.MustCompile(`^\| sourceIP: \? .* destinationIP:(\S+) \| destinationPort:(\d+) \| mark:(\S+) \|$`),
		"? > $1:$2 mark $3"},
	{regexp.MustCompile(`^\|[* ]*\S+ \|[* ]*\S+ \|[* ]*(\S+) \|[* ]*(\d+) \|[* ]*(0x\w+) \|.*$`), "? > $1:$2 mark $3"},
	{regexp.MustCompile(`^(master )?# `), ""}, // output that an article prints as a comment
	{regexp.MustCompile(` [—-]{1,2} `), " -- "},
	{regexp.MustCompile(`^\[\d+:\d+\] `), ""},
	{regexp.MustCompile(` \[\d+:\d+\]$`), ""},
	// iptables -L with -v, and without.
	{regexp.MustCompile(`^\d+[KMG]? \d+[KMG]? (\S+ \S+ --) \S+ \S+ `), "$1 "},
	{regexp.MustCompile(`^(pkts bytes )?target prot opt (in out )?source destination$`),
		"target prot opt source destination"},
	// iptables prints protocols by number or by name, depending on its version.
	{regexp.MustCompile(`^(\S+) 0 --`), "$1 all --"},
	{regexp.MustCompile(`^(\S+) 6 --`), "$1 tcp --"},
	{regexp.MustCompile(`^(\S+) 17 --`), "$1 udp --"},
	{regexp.MustCompile(`\banywhere\b`), "0.0.0.0/0"},
	{regexp.MustCompile(`dpt:www\b`), "dpt:80"},
	{regexp.MustCompile(`\(\d+ references\)`), "(N references)"},
	// The port of a Service without a name was printed as a colon.
	{regexp.MustCompile(`(/\* [a-z-]+/[a-z-]+): `), "$1 "},
	{regexp.MustCompile(`(probability 0\.\d{4})\d+`), "$1"},
	{regexp.MustCompile(`\b(\d+d)?(\d+h)?(\d+m)?\d+s\b|\b\d+d\d+h\b|\b\d+[dhm]\b`), "AGE"},
	{regexp.MustCompile(`\b([a-z0-9]+(?:-[a-z0-9]+)*)-[a-z0-9]{8,10}-[a-z0-9]{5}\b`), "$1-HASH"},
	{regexp.MustCompile(`"?\d{4}-\d\d-\d\dT[\d:]+Z"?`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UID"},
	{regexp.MustCompile(`(resourceVersion): \S+`), "$1: N"},
	{regexp.MustCompile(`References: \d+`), "References: N"},
}

// values finds what may differ: names, addresses and ports. The name of the group becomes that of the placeholder.
const values = `(?P<keep>0\.0\.0\.0/0|127\.0\.0\.0/8|0\.\d{4}\b|order: \d+)` +
	`|(?P<IP>\b\d+\.\d+\.\d+\.\d+(?:/\d+)?\b)` +
	`|(?P<PORT>\b\d{4,5}\b)` +
	`|(?P<SVC>KUBE-SVC-[A-Z0-9]{16})|(?P<SEP>KUBE-SEP-[A-Z0-9]{16})|(?P<XLB>KUBE-XLB-[A-Z0-9]{16})` +
	`|(?P<EXT>KUBE-EXT-[A-Z0-9]{16})|(?P<SVL>KUBE-SVL-[A-Z0-9]{16})` +
	`|(?P<HASH>cali:[\w-]{16}|cali-p[io]-[\w-]{20}|cali40s:[\w-]{15,})` +
	`|(?P<DEVICE>\bcali[0-9a-f]+\b|\btunl0\b|\bvxlan0\b|\bens\d+\b|\beth0\b|\bveth\d+\b)` +
	`|(?P<NAME>(?:default|kube-system)/[a-z0-9-]+(?::[a-z-]+)?`

// line is a line of either side.
type line struct {
	raw    string
	masked string   // with the names of the groups in place of values
	kinds  []string // of the values
	values []string
	at     [][2]int // where they are in raw
}

// newLine masks a line. The expression is that of finder.
func newLine(text string, find *regexp.Regexp) line {
	for _, a := range alike {
		text = a.find.ReplaceAllString(text, a.with)
	}
	l := line{raw: strings.TrimSpace(text)}
	end := 0
	for _, m := range find.FindAllStringSubmatchIndex(l.raw, -1) {
		for group, kind := range find.SubexpNames() {
			if group == 0 || kind == "keep" || m[2*group] < 0 {
				continue
			}
			from, to := m[2*group], m[2*group+1]
			l.masked += l.raw[end:from] + "<" + kind + ">"
			l.kinds = append(l.kinds, kind)
			l.values = append(l.values, l.raw[from:to])
			l.at = append(l.at, [2]int{from, to})
			end = to
		}
	}
	l.masked += l.raw[end:]
	return l
}

// finder returns the expression that finds values, with names of an exhibit.
func finder(names []string) *regexp.Regexp {
	pattern := values
	for _, n := range names {
		pattern += `|\b` + regexp.QuoteMeta(n) + `\b`
	}
	return regexp.MustCompile(pattern + ")")
}

// pairs returns, for each line of the article, the number of the same line of the lab, or -1.
func pairs(article, lab []line, unordered bool) []int {
	if unordered {
		return nearest(article, lab)
	}
	common := make([][]int, len(article)+1)
	for i := range common {
		common[i] = make([]int, len(lab)+1)
	}
	for i := len(article) - 1; i >= 0; i-- {
		for j := len(lab) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if article[i].masked == lab[j].masked {
				common[i][j] = max(common[i][j], common[i+1][j+1]+1)
			}
		}
	}
	out := make([]int, len(article))
	j := 0
	for i := range article {
		out[i] = -1
		for k := j; k < len(lab); k++ {
			if article[i].masked == lab[k].masked && common[i+1][k+1]+1 == common[i][j] {
				out[i], j = k, k+1
				break
			}
		}
	}
	return out
}

// nearest pairs lines in any order. Among the same it prefers those with the most values in common.
func nearest(article, lab []line) []int {
	out := make([]int, len(article))
	taken := make([]bool, len(lab))
	for i, a := range article {
		out[i] = -1
		best := -1
		for j, b := range lab {
			if taken[j] || a.masked != b.masked {
				continue
			}
			n := 0
			for k := range a.values {
				if a.values[k] == b.values[k] {
					n++
				}
			}
			if n > best {
				out[i], best = j, n
			}
		}
		if out[i] >= 0 {
			taken[out[i]] = true
		}
	}
	return out
}

// naming gives the values of both sides their placeholders.
type naming struct {
	partner [2]map[string]string // of a value of the article that of the lab, and the other way round
	label   [2]map[string]string
	count   map[string]int
}

func newNaming() *naming {
	return &naming{partner: [2]map[string]string{{}, {}}, label: [2]map[string]string{{}, {}}, count: map[string]int{}}
}

// pair notes that values of two lines mean the same. It fails if one already means another.
func (n *naming) pair(a, b line) error {
	var errs []error
	for i, v := range a.values {
		w := b.values[i]
		was, known := n.partner[0][v]
		back, taken := n.partner[1][w]
		switch {
		case known && was != w:
			errs = append(errs, fmt.Errorf("%q is %q of the lab, and here %q:\n  %s\n  %s", v, was, w, a.raw, b.raw))
		case taken && back != v:
			errs = append(errs, fmt.Errorf("%q of the lab is %q, and here %q:\n  %s\n  %s", w, back, v, a.raw, b.raw))
		case !known:
			n.same(a.kinds[i], v, w)
		}
	}
	return errors.Join(errs...)
}

// keepEqual pairs values that both sides have, and that have no partner yet, with themselves.
func (n *naming) keepEqual(article, lab []line) {
	of := map[string]bool{}
	for _, l := range lab {
		for _, v := range l.values {
			of[v] = true
		}
	}
	for _, l := range article {
		for i, v := range l.values {
			_, known := n.partner[0][v]
			if _, taken := n.partner[1][v]; of[v] && !known && !taken {
				n.same(l.kinds[i], v, v)
			}
		}
	}
}

// guess pairs the values of two lines that differ, by their kinds and in order, as far as nothing speaks against it.
func (n *naming) guess(a, b line) {
	next := map[string]int{}
	for i, v := range a.values {
		for j := next[a.kinds[i]]; j < len(b.values); j++ {
			if b.kinds[j] != a.kinds[i] {
				continue
			}
			next[a.kinds[i]] = j + 1
			_, known := n.partner[0][v]
			if _, taken := n.partner[1][b.values[j]]; !known && !taken {
				n.same(a.kinds[i], v, b.values[j])
			}
			break
		}
	}
}

// same gives a value of the article and one of the lab the same placeholder, or none if they are equal.
func (n *naming) same(kind, v, w string) {
	n.partner[0][v], n.partner[1][w] = w, v
	label := v
	if v != w {
		label = n.fresh(kind, v)
	}
	n.label[0][v], n.label[1][w] = label, label
}

// fresh returns a new placeholder: IP1, KUBE-SVC-1.
func (n *naming) fresh(kind, value string) string {
	n.count[kind]++
	number := strconv.Itoa(n.count[kind])
	if strings.HasPrefix(value, "KUBE-") {
		return "KUBE-" + kind + "-" + number
	}
	return kind + number
}

// name returns a line of a side, 0 for the article and 1 for the lab, with placeholders.
func (n *naming) name(l line, side int) string {
	out, end := "", 0
	for i, v := range l.values {
		label, known := n.label[side][v]
		if !known {
			label = n.fresh(l.kinds[i], v)
			n.label[side][v] = label
		}
		out += l.raw[end:l.at[i][0]] + label
		end = l.at[i][1]
	}
	return out + l.raw[end:]
}
