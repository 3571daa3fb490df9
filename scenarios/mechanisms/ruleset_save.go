// SPDX-License-Identifier: Apache-2.0

package mechanisms

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/viplab/viplab/internal/lab/iptablessave"
	"github.com/viplab/viplab/lab"
	. "github.com/viplab/viplab/scenarios/fixture"
	"github.com/viplab/viplab/suite/spec"
)

// table is one xtables table as iptables-save prints it: rules by chain.
type table map[string][]rule

// rule is a rule without its comment, and how many packets it has matched.
type rule struct {
	iptablessave.Rule
	packets int
}

// save reads a table of a node through the back end that the proxier writes to.
func save(ctx context.Context, w spec.World, node string, family lab.Family, name string) table {
	return parseSave(saved(ctx, w, node, IPTables(w, family)+"-save", "-c", "-t", name))
}

// saved is the output of a save program in a node. Scenarios that share the cluster may change its rules meanwhile.
func saved(ctx context.Context, w spec.World, node string, command ...string) string {
	return spec.Must(iptablessave.Read(ctx, func() (string, error) { return w.Run(ctx, node, command...) }))
}

// parseSave reads the output of iptables-save -c for one table.
func parseSave(text string) table {
	t := table{}
	for line, err := range iptablessave.Lines(text) {
		spec.MustDo(err)
		if line.Rule != "" {
			t[line.Chain] = append(t[line.Chain], rule{line.Rule.WithoutComment(), line.Packets})
		}
	}
	return t
}

// has reports whether the rule contains all the parts.
func (r rule) has(parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(" "+string(r.Rule)+" ", " "+p+" ") {
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

// want returns an error for each rule that is missing: each is a chain and the parts of a rule in it.
func (t table) want(rules ...[]string) error {
	var errs []error
	for _, r := range rules {
		_, err := t.find(r[0], r[1:]...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// consists reports whether a chain has these rules and no others, each given by its parts.
func (t table) consists(chain string, rules ...[]string) bool {
	return slices.EqualFunc(t[chain], rules, func(r rule, parts []string) bool { return r.has(parts...) })
}

// inOrder wants a chain to have rules with these parts, one after another, with or without others between them.
func (t table) inOrder(chain string, rules ...[]string) error {
	next := 0
	for _, r := range t[chain] {
		if next < len(rules) && r.has(rules[next]...) {
			next++
		}
	}
	if next < len(rules) {
		return fmt.Errorf("%s has no rule with %q where one must be; it has\n%s", chain, strings.Join(rules[next], " "),
			t.text(chain))
	}
	return nil
}

// endsWith is inOrder, and the last of the rules must be the chain's last.
func (t table) endsWith(chain string, rules ...[]string) error {
	all := t[chain]
	if len(all) == 0 || !all[len(all)-1].has(rules[len(rules)-1]...) {
		return fmt.Errorf("%s does not end with %q; it has\n%s", chain, strings.Join(rules[len(rules)-1], " "),
			t.text(chain))
	}
	return t.inOrder(chain, rules...)
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
		fmt.Fprintf(&b, "  [%d] %s\n", r.packets, r.Rule)
	}
	return b.String()
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
