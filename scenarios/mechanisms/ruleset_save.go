// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"github.com/viplab/viplab/lab"
	"github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// table is one xtables table as iptables-save prints it: rules by chain.
type table map[string][]rule

// rule is one rule: what follows "-A CHAIN", without its comment, and how many packets it has matched.
type rule struct {
	text    string
	packets int
}

// save reads a table of a node through the back end that the proxier writes to.
func save(ctx context.Context, w spec.World, node string, family lab.Family, name string) (table, error) {
	text, err := w.Run(ctx, node, fixture.IPTables(w, family)+"-save", "-c", "-t", name)
	if err != nil {
		return nil, err
	}
	return parseSave(text)
}

// parseSave reads the format of iptables-save -c: ":CHAIN POLICY [packets:bytes]" and "[packets:bytes] -A CHAIN rule".
func parseSave(text string) (table, error) {
	t := table{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, ":"); ok {
			chain, _, _ := strings.Cut(name, " ")
			t[chain] = append(t[chain], nil...)
			continue
		}
		counters, rest, ok := strings.Cut(line, " -A ")
		if !ok {
			continue
		}
		packets, _, _ := strings.Cut(strings.TrimPrefix(counters, "["), ":")
		n, err := strconv.Atoi(packets)
		if err != nil {
			return nil, spec.HarnessErrorf("counters of %q: %w", line, err)
		}
		chain, match, _ := strings.Cut(rest, " ")
		t[chain] = append(t[chain], rule{withoutComment(match), n})
	}
	return t, nil
}

// withoutComment drops `-m comment --comment "text"` or `-m comment --comment word`.
func withoutComment(match string) string {
	before, after, ok := strings.Cut(match, "-m comment --comment ")
	if !ok {
		return match
	}
	if quoted, ok := strings.CutPrefix(after, `"`); ok {
		_, after, _ = strings.Cut(quoted, `"`)
	} else {
		_, after, _ = strings.Cut(after, " ")
	}
	return strings.TrimSpace(strings.TrimSpace(before) + " " + strings.TrimSpace(after))
}

// has says whether the rule contains all the parts.
func (r rule) has(parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(" "+r.text+" ", " "+p+" ") {
			return false
		}
	}
	return true
}

// find is the first rule of a chain that contains all the parts.
func (t table) find(chain string, parts ...string) (rule, error) {
	for _, r := range t[chain] {
		if r.has(parts...) {
			return r, nil
		}
	}
	return rule{}, fmt.Errorf("%s has no rule with %q; it has\n%s", chain, strings.Join(parts, " "), t.text(chain))
}

// matched is how many packets the rules of a chain that contain all the parts have matched together.
func (t table) matched(chain string, parts ...string) int {
	sum := 0
	for _, r := range t[chain] {
		if r.has(parts...) {
			sum += r.packets
		}
	}
	return sum
}

// text is a chain as people read it.
func (t table) text(chain string) string {
	if t[chain] == nil {
		return "  (no such chain, or an empty one)"
	}
	var b strings.Builder
	for _, r := range t[chain] {
		fmt.Fprintf(&b, "  [%d] %s\n", r.packets, r.text)
	}
	return b.String()
}

// target is the chain or target a rule jumps or goes to.
func (r rule) target() string {
	fields := strings.Fields(r.text)
	for i, f := range fields[:max(len(fields)-1, 0)] {
		if f == "-j" || f == "-g" {
			return fields[i+1]
		}
	}
	return ""
}

// chainOf is the name kube-proxy gives a chain: a prefix and the first 16 characters of the base32 form of a SHA-256
// sum over what the chain is about (pkg/proxy/iptables, portProtoHash and servicePortEndpointChainName).
func chainOf(prefix string, about ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(about, "")))
	return prefix + base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// svcChain is the chain of a Service's nameless TCP port.
func svcChain(w spec.World, prefix, service string) string {
	return chainOf(prefix, w.Namespace()+"/"+service, "tcp")
}
