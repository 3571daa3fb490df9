// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"fmt"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// The bits of the mark.
const (
	markAccept = 0x10000 // a policy or profile has accepted the packet
	markPass   = 0x20000 // no policy is to be asked any more
)

// set, clear and look at bits of the mark.
func setMark(bits uint32) xtables.Part {
	return xtables.Part(fmt.Sprintf("-j MARK --set-xmark %#x/%#x", bits, bits))
}
func clearMark(bits uint32) xtables.Part {
	return xtables.Part(fmt.Sprintf("-j MARK --set-xmark 0x0/%#x", bits))
}
func lacksMark(bits uint32) xtables.Part {
	return xtables.Part(fmt.Sprintf("-m mark --mark 0x0/%#x", bits))
}

// goTo goes on in a chain, whose end is this one's.
func goTo(chain string) xtables.Part { return xtables.Part("-g " + chain) }

func from(device string) xtables.Part { return xtables.Part("-i " + device) }
func to(device string) xtables.Part   { return xtables.Part("-o " + device) }

// chain is a chain with its rules.
type chain struct {
	name  string
	rules []xtables.Rule
	about string // what it is for
	// why says of some rules what they stand for, by their ids.
	why map[string]string
}

// add adds a rule, with its id in a comment: a hash of it and of all rules before it, as in Calico. A protocol or
// device, the head, comes before it.
func (c *chain) add(head xtables.Part, parts ...xtables.Part) (id string) {
	last := ""
	if n := len(c.rules); n > 0 {
		last = string(c.rules[n-1])
	}
	body := xtables.NewRule(parts...)
	id = "cali:" + hash(16, c.name, last, string(head), string(body))
	c.rules = append(c.rules, xtables.NewRule(head, xtables.Comment(id), xtables.Part(body)))
	return id
}

// drop logs and drops what fits. A prefix has at most 63 bytes.
func (c *chain) drop(d policy.Direction, who string, head xtables.Part, parts ...xtables.Part) {
	s := sides[d]
	prefix := s.log + who
	c.add(head, append(parts[:len(parts):len(parts)],
		xtables.Part(fmt.Sprintf("-j NFLOG --nflog-group %s --nflog-prefix %q", s.group, prefix[:min(len(prefix), 63)])))...)
	c.add(head, append(parts[:len(parts):len(parts)], xtables.Drop)...)
}
