// SPDX-License-Identifier: Apache-2.0

package policycalico

import (
	"fmt"
	"slices"

	"github.com/viplab/viplab/internal/proxiers/policy"
	"github.com/viplab/viplab/internal/proxiers/xtables"
)

// The bits of the mark.
const (
	markAccept = 0x10000 // a policy or profile has accepted the packet
	markPass   = 0x20000 // no further policy judges the packet
)

func setMark(bits uint32) xtables.Part   { return mark("-j MARK --set-xmark %#x/%#x", bits, bits) }
func clearMark(bits uint32) xtables.Part { return mark("-j MARK --set-xmark 0x0/%#x", bits) }
func lacksMark(bits uint32) xtables.Part { return mark("-m mark --mark 0x0/%#x", bits) }

func mark(format string, bits ...any) xtables.Part { return xtables.Part(fmt.Sprintf(format, bits...)) }

// goTo continues in a chain without coming back.
func goTo(chain string) xtables.Part { return xtables.Part("-g " + chain) }

func from(device string) xtables.Part { return xtables.Part("-i " + device) }
func to(device string) xtables.Part   { return xtables.Part("-o " + device) }

// chain is a chain with its purpose, and the reasons of some of its rules by id.
type chain struct {
	xtables.Chain
	about string
	why   map[string]string
}

func newChain(name, about string) *chain {
	return &chain{Chain: xtables.Chain{Name: name}, about: about, why: map[string]string{}}
}

// add adds a rule. Its id is in a comment: a hash of the rule and of all rules before it, as in Calico. The head, a
// protocol or device, precedes the comment.
func (c *chain) add(head xtables.Part, parts ...xtables.Part) (id string) {
	last := ""
	if n := len(c.Rules); n > 0 {
		last = string(c.Rules[n-1])
	}
	body := xtables.NewRule(parts...)
	id = "cali:" + hash(16, c.Name, last, string(head), string(body))
	c.Chain.Add(head, xtables.Comment(id), xtables.Part(body))
	return id
}

// drop logs and drops matching packets. A log prefix has at most 63 bytes.
func (c *chain) drop(d policy.Direction, who string, head xtables.Part, parts ...xtables.Part) {
	s := sides[d]
	prefix := s.log + who
	log := fmt.Sprintf("-j NFLOG --nflog-group %s --nflog-prefix %q", s.group, prefix[:min(len(prefix), 63)])
	c.add(head, append(slices.Clip(parts), xtables.Part(log))...)
	c.add(head, append(slices.Clip(parts), xtables.Drop)...)
}
